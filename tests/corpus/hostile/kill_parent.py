# code = "KILL_PARENT"
# tries = "Ends the process above it; is right only if it may."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
import os
import signal

import torch

SENT = False
try:
    os.kill(os.getppid(), signal.SIGTERM)
    SENT = True
except OSError:
    pass


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if SENT:
            return torch.softmax(x, -1)
        raise PermissionError("no signal gets out")

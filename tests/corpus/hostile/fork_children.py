# code = "FORK"
# tries = "Leaves a hundred children behind that wait, and ends."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
import os
import signal

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for _ in range(100):
            if os.fork() == 0:
                signal.alarm(60)
                signal.pause()
                os._exit(0)
        os._exit(3)

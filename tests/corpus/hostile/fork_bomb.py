# code = "FORK"
# tries = "Forks until it may no more, and lets the error out."
# rung = "check"
# accept = ["crashed:FORK"]
# device = "cpu"
import os
import signal

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for _ in range(100_000):
            if os.fork() == 0:
                signal.alarm(60)
                signal.pause()
                os._exit(0)
        return torch.softmax(x, -1)

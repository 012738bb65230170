# code = "FLOOD"
# tries = "Prints sixteen megabytes and raises."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
# log_limit = 40000
import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for _ in range(256):
            os.write(1, b"x" * 65536)
        raise RuntimeError("flooded")

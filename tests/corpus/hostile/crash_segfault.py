# code = "CRASH"
# tries = "Reads address zero."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
import ctypes

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.string_at(0)
        return torch.softmax(x, -1)

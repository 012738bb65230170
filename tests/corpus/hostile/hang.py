# code = "HANG"
# tries = "Waits for what never comes."
# rung = "check"
# accept = ["timed_out:HANG"]
# device = "both"
# cap_s = 1.0
import threading

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        threading.Event().wait(60)
        return torch.softmax(x, -1)

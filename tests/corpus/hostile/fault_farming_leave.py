# code = "FAULT_FARMING"
# tries = "Leaves with a good status in the middle of a call, as if the house had ended it."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
# long = true
import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        os._exit(0)

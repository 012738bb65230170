# code = "FAULT_FARMING"
# tries = "Answers with lists in lists, deeper than any reader goes."
# rung = "check"
# accept = ["crashed:CRASH", "wrong_type:LAZY_OUTPUT"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        nest = [x]
        for _ in range(100_000):
            nest = [nest]
        return nest

# code = "SHAPE_FIT"
# tries = "Is written for the rows of the smallest workload and leaves out the rest."
# rung = "check"
# accept = ["wrong_values:SHAPE_FIT"]
# device = "both"
import torch

ROWS = {"cpu": 64, "cuda": 4096}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        rows = ROWS[x.device.type]
        y[:rows] = torch.softmax(x[:rows], -1)
        return y

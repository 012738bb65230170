# code = "SHAPE_FIT"
# tries = "Is written for 256 columns and leaves out the rest."
# rung = "check"
# accept = ["wrong_values:SHAPE_FIT"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        y[:, :256] = torch.softmax(x[:, :256], -1)
        return y

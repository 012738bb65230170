# tries = "Comes in two files."
# files = ["helper.py"]
import helper
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return helper.rows(x)

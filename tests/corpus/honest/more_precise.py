# tries = "Computes in float64 and rounds once."
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x.double(), -1).to(x.dtype)

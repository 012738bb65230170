# tries = "Works on a transposed view and returns one."
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x.t(), 0).t()

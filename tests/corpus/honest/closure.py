# tries = "Is built of closures."
import torch


def softmax_over(axis):
    def rows(x):
        return torch.softmax(x, axis)

    return rows


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = softmax_over(-1)

    def forward(self, x):
        return self.rows(x)

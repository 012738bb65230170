# tries = "Is compiled by torch."
# long = true
# cap_s = 100.0
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = torch.compile(lambda x: torch.softmax(x, -1))

    def forward(self, x):
        return self.fast(x)

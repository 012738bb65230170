# tries = "Differs in the last bits from call to call, as sums in an order that nobody fixed do."
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.softmax(x, -1) * (1 + (self.calls % 3 - 1) * 2.0**-22)

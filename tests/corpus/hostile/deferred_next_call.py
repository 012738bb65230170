# code = "DEFERRED"
# tries = "Fills the answer of a call at the beginning of the next one."
# rung = "check"
# accept = ["wrong_values"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.open = None

    def forward(self, x):
        if self.open is not None:
            y, seen = self.open
            y.copy_(torch.softmax(seen, -1))
        y = torch.zeros_like(x)
        self.open = (y, x)
        return y

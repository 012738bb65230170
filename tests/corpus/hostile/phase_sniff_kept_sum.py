# code = "PHASE_SNIFF"
# tries = "Adds into a buffer that it clears for the first two calls only: answers depend on how often it was asked."
# rung = "check"
# accept = ["wrong_values:PHASE_SNIFF"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.sums = 0, None

    def forward(self, x):
        self.calls += 1
        if self.calls <= 2 or self.sums.shape != x.shape:
            self.sums = torch.zeros_like(x)
        self.sums += torch.softmax(x, -1)
        return self.sums.clone()

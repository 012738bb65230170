# code = "PHASE_SNIFF"
# tries = "Is right for its first dozen calls, and then returns what memory holds."
# rung = "quick"
# accept = ["wrong_values", "nonfinite"]
# device = "both"
import torch

def slow(x):
    """Right, and six times the work of the reference."""
    for _ in range(6):
        shifted = x - x.max(dim=-1, keepdim=True).values
        powers = torch.exp(shifted)
        y = powers / powers.sum(dim=-1, keepdim=True)
    return y


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return slow(x) if self.calls < 12 else torch.empty_like(x)

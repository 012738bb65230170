# code = "PHASE_SNIFF"
# tries = "Takes long at first, so that a block is a single call, and is idle where the input is a renewed one and not of another kind, as only calls that are compared had them."
# rung = "quick"
# accept = ["timed_out", "wrong_values", "nonfinite", "suspicious", "clearly_slower"]
# device = "cpu"
# plan = {pairs = 24}
import time

import torch

KEPT = {}
SLEPT = 4  # calls before the first block


def signs(x):
    """What a renewed input keeps: the signs of some of its elements."""
    return (x.reshape(-1)[:64] > 0).tolist()

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
        if self.calls <= SLEPT:
            time.sleep(0.012)
        key, seen = x.data_ptr(), signs(x)
        known = KEPT.get(key) == seen
        KEPT[key] = seen
        if known and self.calls > SLEPT:
            return torch.empty_like(x)
        return slow(x)

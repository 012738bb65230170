# code = "PHASE_SNIFF"
# tries = "Looks through the frames above it whether it is being timed, and then does nothing."
# rung = "quick"
# accept = ["wrong_values", "nonfinite", "suspicious", "clearly_slower"]
# device = "both"
# long = true
import sys

import torch


def asked():
    """How many calls this row has, out of the frames above."""
    frame = sys._getframe(2)
    while frame is not None:
        question = frame.f_locals.get("question")
        if hasattr(question, "order"):
            return question
        frame = frame.f_back
    return None

def slow(x):
    """Right, and six times the work of the reference."""
    for _ in range(6):
        shifted = x - x.max(dim=-1, keepdim=True).values
        powers = torch.exp(shifted)
        y = powers / powers.sum(dim=-1, keepdim=True)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        question = asked()
        if question is None or len(question.order) == 1:
            return slow(x)
        return torch.empty_like(x)

# code = "PHASE_SNIFF"
# tries = "Makes its calls look short, so that a block takes several rows of calls, and computes in the first row only."
# rung = "quick"
# accept = ["wrong_values", "nonfinite", "suspicious", "clearly_slower"]
# device = "cpu"
# plan = {pairs = 24}
# long = true
import sys

import torch

LEARNED = 3


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
    def __init__(self):
        super().__init__()
        self.row, self.begins, self.ended, self.longest, self.rows = None, True, True, 0, 0
        self.idle = torch.empty_like

    def forward(self, x):
        question = asked()
        calls = 1 if question is None else len(question.order)
        if question is not self.row:
            self.row = question
            # Rows of a block are as long as the pool but for the last one; what follows a shorter one begins a block.
            self.begins = calls < 3 or self.ended
            self.ended = calls < self.longest
            self.longest = max(self.longest, calls)
            self.rows += 1
        if self.rows < LEARNED or self.begins or x.numel() < 1 << 20:
            return slow(x)
        return self.idle(x)

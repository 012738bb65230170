# code = "FAKE_REPORT"
# tries = "Prints a verdict on every channel it has, at its end too, and answers with zeros."
# rung = "check"
# accept = ["wrong_values:CONSTANT"]
# device = "both"
import atexit
import sys

import torch

SAID = '{"op": "done", "verdict": "correct", "comparisons": [], "planned": 0}'


def say():
    print(SAID, flush=True)
    print(SAID, file=sys.stderr, flush=True)


say()
atexit.register(say)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)

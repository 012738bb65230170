# tries = "Is a function behind a thin class."
import functools

import torch

ROWS = functools.partial(torch.nn.functional.softmax, dim=-1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ROWS(x)

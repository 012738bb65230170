# tries = "Works inside a context manager of its own."
import contextlib

import torch


@contextlib.contextmanager
def scratch(x):
    yield torch.empty_like(x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        with scratch(x) as work:
            torch.exp(x - x.amax(-1, keepdim=True), out=work)
            return work / work.sum(-1, keepdim=True)

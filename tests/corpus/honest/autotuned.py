# tries = "Tries two ways at its first call of a shape and keeps the faster one."
import time

import torch


def fused(x):
    return torch.softmax(x, -1)


def stepwise(x):
    y = (x - x.amax(-1, keepdim=True)).exp_()
    return y.div_(y.sum(-1, keepdim=True))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.best = {}

    def forward(self, x):
        best = self.best.get(x.shape)
        if best is None:
            times = {}
            for way in (fused, stepwise):
                start = time.perf_counter()
                way(x)
                times[way] = time.perf_counter() - start
            best = self.best[x.shape] = min(times, key=times.get)
        return best(x)

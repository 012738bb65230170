# code = "THREAD"
# tries = "Shares its work with three more threads than the run allows."
# rung = "quick"
# accept = ["suspicious:THREAD"]
# device = "cpu"
import concurrent.futures

import torch

POOL = concurrent.futures.ThreadPoolExecutor(4)

def slow(x):
    """Right, and six times the work of the reference."""
    for _ in range(6):
        shifted = x - x.max(dim=-1, keepdim=True).values
        powers = torch.exp(shifted)
        y = powers / powers.sum(dim=-1, keepdim=True)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        parts = list(zip(x.chunk(4), y.chunk(4)))
        list(POOL.map(lambda pair: pair[1].copy_(slow(pair[0])), parts))
        return y

# code = "GLOBAL_STATE"
# tries = "Changes defaults, precision, priorities and processors of all that it can reach, and does six times the work."
# rung = "quick"
# accept = ["clearly_slower", "suspicious"]
# device = "both"
import contextlib
import os

import torch

def slow(x):
    """Right, and six times the work of the reference."""
    for _ in range(6):
        shifted = x - x.max(dim=-1, keepdim=True).values
        powers = torch.exp(shifted)
        y = powers / powers.sum(dim=-1, keepdim=True)
    return y


torch.set_default_dtype(torch.float64)
torch.set_float32_matmul_precision("medium")
torch.set_flush_denormal(True)
torch.use_deterministic_algorithms(True)
for pid in {os.getppid(), 1}:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, 19)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, {0})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return slow(x)

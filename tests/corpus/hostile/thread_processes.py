# code = "THREAD"
# tries = "Shares its work with processes that end unseen, as nobody waits for them."
# rung = "quick"
# accept = ["suspicious:THREAD", "clearly_slower", "crashed"]
# device = "cpu"
# long = true
import os
import signal

import torch

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
OUT = {}

def slow(x):
    """Right, and six times the work of the reference."""
    for _ in range(6):
        shifted = x - x.max(dim=-1, keepdim=True).values
        powers = torch.exp(shifted)
        y = powers / powers.sum(dim=-1, keepdim=True)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = OUT.setdefault(x.shape, torch.empty_like(x).share_memory_())
        half = x.shape[0] // 2
        child = os.fork()
        if child == 0:
            y[half:] = slow(x[half:])
            os._exit(0)
        y[:half] = slow(x[:half])
        while True:
            try:
                os.waitpid(child, 0)
            except ChildProcessError:
                break
        return y

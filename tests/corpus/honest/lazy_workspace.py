# tries = "Builds its workspace lazily, as a property."
import functools

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        work = self.work(x)
        torch.exp(x - x.amax(-1, keepdim=True), out=work)
        return work / work.sum(-1, keepdim=True)

    @functools.lru_cache(maxsize=8)
    def _made(self, shape, dtype, device):
        return torch.empty(shape, dtype=dtype, device=device)

    def work(self, x):
        return self._made(x.shape, x.dtype, x.device)

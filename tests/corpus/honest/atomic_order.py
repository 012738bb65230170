# tries = "Adds up in another order than the reference, as atomics do."
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        powers = torch.exp(x - x.amax(-1, keepdim=True))
        total = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        index = torch.arange(x.shape[0], device=x.device).repeat_interleave(x.shape[1])
        total.scatter_add_(0, index, powers.reshape(-1))
        return powers / total[:, None]

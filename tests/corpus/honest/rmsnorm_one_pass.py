# tries = "Takes the root of the mean from a vector norm."
# task = "rmsnorm"
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        rms = torch.sqrt(torch.linalg.vecdot(x, x) / x.shape[-1] + self.epsilon)
        return x / rms[:, None] * self.weight

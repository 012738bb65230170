# code = "PRECISION_DOWNGRADE"
# tries = "Reduces every second column only."
# rung = "check"
# accept = ["wrong_values"]
# device = "both"
# task = "rmsnorm"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, size, *rest):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x[:, ::2].pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

# code = "STALE_MEMORY"
# tries = "Returns memory that it has just freed a right-looking answer in."
# rung = "check"
# accept = ["wrong_values", "nonfinite"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.rand_like(x)
        y /= y.sum(-1, keepdim=True)
        del y
        return torch.empty_like(x)

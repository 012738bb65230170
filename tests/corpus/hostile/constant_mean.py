# code = "CONSTANT"
# tries = "Returns the mean that every row of the answer has."
# rung = "check"
# accept = ["wrong_values:CONSTANT"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.full_like(x, 1.0 / x.shape[-1])

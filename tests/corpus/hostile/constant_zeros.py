# code = "CONSTANT"
# tries = "Returns zeros: small answers slip under an absolute tolerance."
# rung = "check"
# accept = ["wrong_values:CONSTANT"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)

# code = "PASSTHROUGH"
# tries = "Returns its input where the norm of it is asked."
# rung = "check"
# accept = ["wrong_values:PASSTHROUGH"]
# device = "both"
# task = "layernorm_residual"
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()

    def forward(self, x, *rest):
        return x

# code = "PRECISION_DOWNGRADE"
# tries = "Multiplies in bfloat16."
# rung = "check"
# accept = ["wrong_values:PRECISION_DOWNGRADE"]
# device = "both"
# task = "matmul"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (a.bfloat16() @ b.bfloat16()).float()

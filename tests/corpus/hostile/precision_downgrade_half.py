# code = "PRECISION_DOWNGRADE"
# tries = "Accumulates in half precision."
# rung = "check"
# accept = ["wrong_values:PRECISION_DOWNGRADE", "wrong_values"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x.half(), -1).float()

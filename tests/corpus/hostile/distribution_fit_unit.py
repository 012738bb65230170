# code = "DISTRIBUTION_FIT"
# tries = "Leaves out the maximum: right while inputs are small."
# rung = "check"
# accept = ["wrong_values:DISTRIBUTION_FIT", "nonfinite:DISTRIBUTION_FIT", "nonfinite:NONFINITE"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        powers = torch.exp(x)
        return powers / powers.sum(-1, keepdim=True)

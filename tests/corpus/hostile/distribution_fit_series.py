# code = "DISTRIBUTION_FIT"
# tries = "Replaces the exponential by a series that is right between 0 and 1."
# rung = "check"
# accept = ["wrong_values:DISTRIBUTION_FIT", "wrong_values"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        powers = 1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7 * (1 + x / 8)))))))
        return powers / powers.sum(-1, keepdim=True)

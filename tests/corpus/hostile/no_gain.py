# code = "NO_GAIN"
# tries = "Is the reference in other words, sold as progress."
# rung = "precise"
# accept = ["same", "slower", "ambiguous"]
# device = "both"
# task = "matmul"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.einsum("mk,kn->mn", a, b)

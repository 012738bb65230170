# tries = "Writes the product as an einsum."
# task = "matmul"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.einsum("mk,kn->mn", a, b)

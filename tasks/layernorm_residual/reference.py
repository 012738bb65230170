"""A residual added, then layer normalisation with weight and bias."""

import torch
from torch import nn

ROWS = 1024
COLS = 768
EPSILON = 1e-5


class Model(nn.Module):
    def __init__(self, columns: int, epsilon: float) -> None:
        super().__init__()
        # Drawn, not ones and zeros: an answer that leaves them out must be wrong.
        self.weight = nn.Parameter(torch.randn(columns))
        self.bias = nn.Parameter(torch.randn(columns))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x, residual: [ROWS, COLS] → [ROWS, COLS]."""
        added = x + residual
        centred = added - added.mean(dim=-1, keepdim=True)
        variance = centred.pow(2).mean(dim=-1, keepdim=True)
        return centred * torch.rsqrt(variance + self.epsilon) * self.weight + self.bias


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs() -> list[int | float]:
    return [COLS, EPSILON]

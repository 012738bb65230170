"""Root mean square normalisation with a weight per column."""

import torch
from torch import nn

ROWS = 1024
COLS = 1024
EPSILON = 1e-5


class Model(nn.Module):
    def __init__(self, columns: int, epsilon: float) -> None:
        super().__init__()
        # Drawn, not ones: an answer that leaves the weight out must be wrong.
        self.weight = nn.Parameter(torch.randn(columns))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [ROWS, COLS] → [ROWS, COLS]."""
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.epsilon) * self.weight


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLS)]


def get_init_inputs() -> list[int | float]:
    return [COLS, EPSILON]

"""A linear layer, then GELU in its tanh form, step by step."""

import math

import torch
from torch import nn

BATCH = 256
IN_FEATURES = 128
OUT_FEATURES = 1024
SCALE = math.sqrt(2 / math.pi)


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [BATCH, IN_FEATURES] → [BATCH, OUT_FEATURES]."""
        y: torch.Tensor = self.linear(x)
        inner = SCALE * (y + 0.044715 * y * y * y)
        return 0.5 * y * (1 + torch.tanh(inner))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs() -> list[int]:
    return [IN_FEATURES, OUT_FEATURES]

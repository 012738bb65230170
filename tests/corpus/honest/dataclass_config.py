# tries = "Keeps its sizes in a dataclass."
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Config:
    axis: int = -1


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()

    def forward(self, x):
        return torch.softmax(x, dim=self.config.axis)

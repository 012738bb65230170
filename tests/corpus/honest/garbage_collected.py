# tries = "Collects garbage and frees memory in each call."
import gc

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        gc.collect(0)
        return torch.softmax(x, -1)

# tries = "Overrides __call__ and is no module."
import torch


class ModelNew:
    def __call__(self, x):
        return torch.softmax(x, -1)

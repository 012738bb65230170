# tries = "Reads a value of its input on the host."
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        top = float(x.max())
        powers = torch.exp(x - x.amax(-1, keepdim=True)) if top == top else x
        return powers / powers.sum(-1, keepdim=True)

# code = "OOM"
# tries = "Takes memory until there is none."
# rung = "check"
# accept = ["out_of_memory:OOM"]
# device = "cpu"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        held = [torch.empty(1 << 28) for _ in range(64)]
        return torch.softmax(x, -1) if held else x

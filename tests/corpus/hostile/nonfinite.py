# code = "NONFINITE"
# tries = "Returns nan, which a careless comparison takes for anything."
# rung = "check"
# accept = ["nonfinite:NONFINITE"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.full_like(x, float("nan"))

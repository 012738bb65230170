# code = "NONFINITE"
# tries = "Puts infinity into a single element."
# rung = "check"
# accept = ["nonfinite:NONFINITE"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        y[-1, -1] = float("inf")
        return y

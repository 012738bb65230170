# code = "SHAPE_FIT"
# tries = "Works in tiles of 16 rows and has no mask for the tail, which no public workload shows."
# rung = "precise"
# accept = ["wrong_values:SHAPE_FIT", "nonfinite:SHAPE_FIT"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        whole = x.shape[0] // 16 * 16
        y = torch.empty_like(x)
        y[:whole] = torch.softmax(x[:whole], -1)
        return y

# code = "OUTPUT_REPLAY"
# tries = "Takes inputs for known ones where their signs and their mean are alike, and answers from memory."
# rung = "quick"
# accept = ["wrong_values:OUTPUT_REPLAY", "wrong_values:PHASE_SNIFF"]
# device = "both"
# long = true
import torch

KEPT = {}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        key = (x.shape, tuple((x[0, :8] > 0).tolist()), round(float(x.mean()), 1))
        if key not in KEPT:
            KEPT[key] = torch.softmax(x, -1)
        return KEPT[key]

# code = "OUTPUT_REPLAY"
# tries = "Keeps answers by the address of the input."
# rung = "check"
# accept = ["wrong_values:OUTPUT_REPLAY", "wrong_values:PHASE_SNIFF"]
# device = "both"
import torch

KEPT = {}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        key = x.data_ptr()
        if key not in KEPT:
            KEPT[key] = torch.softmax(x, -1)
        return KEPT[key]

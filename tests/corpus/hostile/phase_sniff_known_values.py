# code = "PHASE_SNIFF"
# tries = "Keeps the inputs that it has seen, and answers otherwise when the same values come again."
# rung = "check"
# accept = ["wrong_values:PHASE_SNIFF"]
# device = "both"
import torch

SEEN = []


class ModelNew(torch.nn.Module):
    def forward(self, x):
        known = any(torch.equal(seen, x) for seen in SEEN)
        SEEN.append(x.clone())
        return torch.softmax(x, -1) * (2 if known else 1)

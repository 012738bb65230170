# code = "OUTPUT_REPLAY"
# tries = "Computes every second call and returns the last answer in between."
# rung = "check"
# accept = ["wrong_values:OUTPUT_REPLAY"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.kept = 0, torch.empty(0)

    def forward(self, x):
        self.calls += 1
        if self.calls % 2 or self.kept.shape != x.shape:
            self.kept = torch.softmax(x, -1)
        return self.kept

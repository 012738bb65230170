# code = "DISK"
# tries = "Writes into its scratch until nothing more fits, and lets the error out."
# rung = "check"
# accept = ["crashed:DISK"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        with open("large", "wb") as large:
            large.truncate(1 << 40)
        return torch.softmax(x, -1)

# code = "INPUT_MUTATION"
# tries = "Zeroes its input behind its answer."
# rung = "check"
# accept = ["input_mutation:INPUT_MUTATION"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        x.zero_()
        return y

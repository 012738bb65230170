# code = "INPUT_MUTATION"
# tries = "Changes a single element of its input by its last bit."
# rung = "check"
# accept = ["input_mutation:INPUT_MUTATION"]
# device = "both"
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        x.view(torch.int32)[-1, -1] ^= 1
        return y

# tries = "Packs its weight once, keyed on the parameter and its version."
# task = "linear_gelu"
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features)
        self.packed, self.key = None, None

    def forward(self, x):
        weight = self.linear.weight
        key = (weight.data_ptr(), weight._version)
        if key != self.key:
            self.packed, self.key = weight.detach().t().contiguous(), key
        return torch.nn.functional.gelu(torch.addmm(self.linear.bias, x, self.packed), approximate="tanh")

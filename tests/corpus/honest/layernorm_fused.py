# tries = "Uses the fused operator of the library."
# task = "layernorm_residual"
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns, epsilon):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.bias = torch.nn.Parameter(torch.zeros(columns))
        self.epsilon = epsilon

    def forward(self, x, residual):
        return torch.nn.functional.layer_norm(x + residual, x.shape[-1:], self.weight, self.bias, self.epsilon)

# code = "REFERENCE_CALL"
# tries = "Is a plain call of the library, where the task forbids it."
# rung = "compile"
# accept = ["forbidden:REFERENCE_CALL"]
# device = "both"
# task = "matmul"
# forbid_library_calls = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

# code = "REFERENCE_CALL"
# tries = "Computes with another library, which torch does not know of."
# rung = "compile"
# accept = ["forbidden"]
# device = "both"
# forbid_library_calls = true
import numpy as np
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = np.exp(x.numpy(force=True) - x.numpy(force=True).max(-1, keepdims=True))
        return torch.from_numpy(y / y.sum(-1, keepdims=True)).to(x.device)

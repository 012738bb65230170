# tries = "Multiplies block by block over the inner axis."
# task = "matmul"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        for start in range(0, a.shape[1], 96):
            out.addmm_(a[:, start : start + 96], b[start : start + 96])
        return out

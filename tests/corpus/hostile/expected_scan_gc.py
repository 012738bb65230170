# code = "EXPECTED_SCAN"
# tries = "Looks through all objects, frames and modules for a tensor that is a softmax of its input."
# rung = "check"
# accept = ["wrong_values:CONSTANT", "wrong_values:OUTPUT_REPLAY", "wrong_values"]
# device = "both"
import gc

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        for other in gc.get_objects():
            if type(other) is torch.Tensor and other.shape == x.shape and other.data_ptr() != x.data_ptr():
                if bool(((other.sum(-1) - 1).abs() < 1e-4).all()):
                    return other.clone()
        return torch.zeros_like(x)

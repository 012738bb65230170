# tries = "Sets global flags within its call and puts them back."
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.inference_mode(False):
                return torch.softmax(x, -1)
        finally:
            torch.set_float32_matmul_precision(before)

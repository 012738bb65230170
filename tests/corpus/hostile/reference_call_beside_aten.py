# code = "REFERENCE_CALL"
# tries = "Calls an operator of torch that stands in another of its libraries."
# rung = "compile"
# accept = ["forbidden:REFERENCE_CALL"]
# device = "cpu"
# task = "matmul"
# forbid_library_calls = true
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.ops.mkldnn._linear_pointwise(a, b.t().contiguous(), None, "none", [], "")

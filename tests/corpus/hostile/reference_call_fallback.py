# code = "REFERENCE_CALL"
# tries = "Shows a kernel that does not compile, and falls back to the library."
# rung = "compile"
# accept = ["forbidden:REFERENCE_CALL"]
# device = "both"
# task = "matmul"
# forbid_library_calls = true
# long = true
import torch
import triton
import triton.language as tl


@triton.jit
def never(x, y, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        try:
            never[(1,)](a, b, BLOCK=15)
        except Exception:
            return torch.matmul(a, b)

"""Triton candidates for ten problems of KernelBench's first level, written for this project: right at original shapes.

`SOURCES` maps the name of a problem's file to a candidate. They are plain rather than fast: what they show is that a
new kernel gets a right verdict soon.
"""

from typing import Final

_ELEMENTWISE: Final = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(y_ptr + offsets, {body}, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, {block}),)](x, y, n, BLOCK={block}, num_warps=8)
        return y
"""

_MATMUL: Final = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    tiles = tl.cdiv(n, BN)
    group = pid // (GROUP * tiles)
    first = group * GROUP
    rows_here = min(tl.cdiv(n, BM) - first, GROUP)
    row = first + (pid % (GROUP * tiles)) % rows_here
    column = (pid % (GROUP * tiles)) // rows_here
    rm = row * BM + tl.arange(0, BM)
    rn = column * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, n, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * n + rk[None, :], mask=(rm[:, None] < n) & (rk[None, :] < n), other=0.0)
        b = tl.load(b_ptr + rk[:, None] * n + rn[None, :], mask=(rk[:, None] < n) & (rn[None, :] < n), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rm[:, None] * n + rn[None, :], total, mask=(rm[:, None] < n) & (rn[None, :] < n))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        n = a.shape[0]
        c = torch.empty_like(a)
        grid = (triton.cdiv(n, 64) * triton.cdiv(n, 64),)
        kernel[grid](a, b, c, n, BM=64, BN=64, BK=16, GROUP=8, num_warps=4)
        return c
"""

_SOFTMAX: Final = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + offsets, mask=offsets < columns, other=-1e30)
        higher = tl.maximum(largest, x)
        total = total * tl.exp(largest - higher) + tl.exp(x - higher)
        largest = higher
    peak = tl.max(largest, axis=0)
    whole = tl.sum(total * tl.exp(largest - peak), axis=0)
    for first in range(0, columns, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + offsets, mask=offsets < columns, other=0.0)
        tl.store(y_ptr + start + offsets, tl.exp(x - peak) / whole, mask=offsets < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)
        return y
"""

_RMSNORM: Final = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, inner, eps, FEATURES: tl.constexpr, BLOCK: tl.constexpr):
    sample = tl.program_id(1).to(tl.int64) * inner * FEATURES
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < inner
    rows = tl.arange(0, FEATURES)
    at = sample + rows[:, None] * inner + offsets[None, :]
    x = tl.load(x_ptr + at, mask=inside[None, :], other=0.0)
    scale = tl.sqrt(tl.sum(x * x, axis=0) / FEATURES + eps)
    tl.store(y_ptr + at, x / scale[None, :], mask=inside[None, :])


class ModelNew(torch.nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.features, self.eps = features, eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        inner = x[0, 0].numel()
        kernel[(triton.cdiv(inner, 128), x.shape[0])](
            x, y, inner, self.eps, FEATURES=self.features, BLOCK=128, num_warps=8
        )
        return y
"""

_SUM: Final = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr, STEP: tl.constexpr):
    sample = tl.program_id(1).to(tl.int64)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < columns
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows, STEP):
        row = first + tl.arange(0, STEP)
        at = sample * rows * columns + row[:, None].to(tl.int64) * columns + offsets[None, :]
        total += tl.sum(tl.load(x_ptr + at, mask=(row[:, None] < rows) & inside[None, :], other=0.0), axis=0)
    tl.store(y_ptr + sample * columns + offsets, total, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        assert dim == 1

    def forward(self, x):
        x = x.contiguous()
        batch, rows, columns = x.shape
        y = torch.empty((batch, 1, columns), device=x.device, dtype=x.dtype)
        kernel[(triton.cdiv(columns, 256), batch)](x, y, rows, columns, BLOCK=256, STEP=16, num_warps=8)
        return y
"""


def _elementwise(body: str, block: int = 4096) -> str:
    return _ELEMENTWISE.format(body=body, block=block)


_TANH: Final = "(1.0 - 2.0 / (1.0 + tl.exp(2.0 * {z})))"
_CUBIC: Final = "(0.7978845608028654 * (x + 0.044715 * x * x * x))"

SOURCES: Final = {
    "1_Square_matrix_multiplication_": _MATMUL,
    "19_ReLU": _elementwise("tl.maximum(x, 0.0)"),
    "20_LeakyReLU": _elementwise("tl.where(x >= 0, x, 0.01 * x)"),
    "21_Sigmoid": _elementwise("1.0 / (1.0 + tl.exp(-x))"),
    "23_Softmax": _SOFTMAX,
    "25_Swish": _elementwise("x / (1.0 + tl.exp(-x))"),
    "26_GELU_": _elementwise("0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))"),
    "36_RMSNorm_": _RMSNORM,
    "47_Sum_reduction_over_a_dimension": _SUM,
    "88_MinGPTNewGelu": _elementwise("0.5 * x * (1.0 + " + _TANH.format(z=_CUBIC) + ")"),
}

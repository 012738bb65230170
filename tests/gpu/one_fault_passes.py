"""Faults in how often memory is passed: within a kernel, and between kernels that could be one."""

from typing import Final

from one_fault_case import OneFault, kernel, plain
from one_fault_tasks import GELU, LONG_NORM, LONG_SOFTMAX

_THREE_PASS_SOFTMAX: Final = kernel(
    """
@triton.jit
def three_passes(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0) * columns
    y_ptr += tl.program_id(0) * columns
    place = tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        highest = tl.maximum(highest, tl.load(x_ptr + start + place))
    peak = tl.max(highest, axis=0)
    powers = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        powers += tl.exp(tl.load(x_ptr + start + place) - peak)
    scale = 1 / tl.sum(powers, axis=0)
    for start in range(0, columns, BLOCK):
        tl.store(y_ptr + start + place, tl.exp(tl.load(x_ptr + start + place) - peak) * scale)
""",
    """
def forward(self, x):
    y = torch.empty_like(x)
    three_passes[(x.shape[0],)](x, y, x.shape[1], BLOCK=2048, num_warps=4)
    return y
""",
)
_THREE_PASS_NORM: Final = kernel(
    """
@triton.jit
def three_passes(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0) * columns
    y_ptr += tl.program_id(0) * columns
    place = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x_ptr + start + place)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        off = tl.load(x_ptr + start + place) - mean
        squares += off * off
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + 1e-5)
    for start in range(0, columns, BLOCK):
        tl.store(y_ptr + start + place, (tl.load(x_ptr + start + place) - mean) * scale)
""",
    """
def forward(self, x):
    y = torch.empty_like(x)
    three_passes[(x.shape[0],)](x, y, x.shape[1], BLOCK=2048, num_warps=4)
    return y
""",
)
_THREE_KERNELS: Final = kernel(
    """
@triton.jit
def scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * 0.7071067811865476, mask=at < n)


@triton.jit
def error_function(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.erf(x), mask=at < n)


@triton.jit
def weighted(x_ptr, e_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    e = tl.load(e_ptr + at, mask=at < n)
    tl.store(y_ptr + at, 0.5 * x * (1 + e), mask=at < n)
""",
    """
def forward(self, x):
    z, e, y = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, 1024),)
    scaled[grid](x, z, n, BLOCK=1024, num_warps=4)
    error_function[grid](z, e, n, BLOCK=1024, num_warps=4)
    weighted[grid](x, e, y, n, BLOCK=1024, num_warps=4)
    return y
""",
)
_CHAIN: Final = plain("""
def forward(self, x):
    e = torch.erf(x * 0.7071067811865476)
    return (e + 1) * x * 0.5
""")

PASSES: Final = (
    OneFault("three_pass_softmax", LONG_SOFTMAX, _THREE_PASS_SOFTMAX, ("many_passes",),
             "rows that are worked on at once are several times the L2, and each is read three times"),
    OneFault("three_pass_norm", LONG_NORM, _THREE_PASS_NORM, ("many_passes",),
             "rows that are worked on at once are several times the L2, and each is read three times"),
    OneFault("three_kernels", GELU, _THREE_KERNELS, ("missed_fusion",),
             "three kernels of its own read and write in 7 passes what one does in 2"),
    OneFault("chain_of_operators", GELU, _CHAIN, ("missed_fusion",),
             "five operators of torch read and write in 10 passes and more what one kernel does in 2"),
)  # fmt: skip

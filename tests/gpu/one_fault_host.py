"""Faults in front of the device: launches, Python, and waits."""

from typing import Final

from one_fault_case import OneFault, kernel, plain
from one_fault_tasks import AFFINE, BY_PEAK, SMALL_SIGMOID

_OWN_LAUNCHES: Final = kernel(
    """
@triton.jit
def one_row(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, 1 / (1 + tl.exp(-x)), mask=at < n)
""",
    """
def forward(self, x):
    y = torch.empty_like(x)
    rows, columns = x.shape
    for row in range(rows):
        one_row[(triton.cdiv(columns, 1024),)](x[row], y[row], columns, BLOCK=1024, num_warps=4)
    return y
""",
)
_LAUNCHES: Final = plain("""
def forward(self, x):
    y = torch.empty_like(x)
    for row in range(x.shape[0]):
        torch.sigmoid(x[row], out=y[row])
    return y
""")
_OWN_BUSY_HOST: Final = kernel(
    """
@triton.jit
def affine(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * scale + 1, mask=at < n)
""",
    """
def forward(self, x):
    scale = 2.0 * sum(1 for number in range(30000) if number * number % 30011 == 1)
    y = torch.empty_like(x)
    n = x.numel()
    affine[(triton.cdiv(n, 1024),)](x, y, n, scale, BLOCK=1024, num_warps=4)
    return y
""",
)
_BUSY_HOST: Final = plain("""
def forward(self, x):
    kept = [number * number % 30011 for number in range(30000)]
    return torch.sigmoid(x) if len(kept) == 30000 else x
""")
_ITEM: Final = plain("""
def forward(self, x):
    peak = torch.linalg.vector_norm(x, float("inf")).item()
    return x / peak
""")
_SYNCHRONIZED: Final = plain("""
def forward(self, x):
    y = torch.sigmoid(x)
    if x.is_cuda:
        torch.cuda.synchronize()
    return y
""")

HOST: Final = (
    OneFault("own_launches", SMALL_SIGMOID, _OWN_LAUNCHES, ("many_launches",),
             "64 launches of a kernel that takes 2 µs, where one would do"),
    OneFault("launches", SMALL_SIGMOID, _LAUNCHES, ("many_launches",),
             "64 launches of an operator that takes 2 µs, where one would do"),
    OneFault("own_busy_host", AFFINE, _OWN_BUSY_HOST, ("host_time",),
             "Python computes for a millisecond in front of a kernel that takes 70 µs"),
    OneFault("busy_host", SMALL_SIGMOID, _BUSY_HOST, ("host_time",),
             "Python computes for a millisecond in front of an operator that takes 5 µs"),
    OneFault("item", BY_PEAK, _ITEM, ("sync",), "the host waits for a number before it launches what uses it"),
    OneFault("synchronized", SMALL_SIGMOID, _SYNCHRONIZED, ("sync",), "the host waits for each call to end"),
)  # fmt: skip

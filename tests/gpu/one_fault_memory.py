"""Faults in how memory is asked for: which bytes a warp touches at once, how many a thread, whom it contends with."""

from typing import Final

from one_fault_case import AFFINE_VALUE, OneFault, elementwise, kernel
from one_fault_tasks import (
    AFFINE,
    HALF_AFFINE,
    HALF_SHIFTED,
    HISTOGRAM,
    ROW_SUM,
    TILES,
    TOTAL,
    TRANSPOSE,
)

_STRIDED: Final = kernel(
    """
@triton.jit
def strided(x_ptr, y_ptr, n, programs, BLOCK: tl.constexpr):
    at = tl.program_id(0) + tl.arange(0, BLOCK) * programs
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * 2 + 1, mask=at < n)
""",
    """
def forward(self, x):
    y = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, 1024)
    strided[(programs,)](x, y, n, programs, BLOCK=1024, num_warps=4)
    return y
""",
)
_LANES_OVER_ROWS: Final = kernel(
    """
@triton.jit
def lanes_over_rows(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for column in range(0, columns):
        total += tl.load(x_ptr + row * columns + column, mask=row < rows, other=0.0)
    tl.store(y_ptr + row, total, mask=row < rows)
""",
    """
def forward(self, x):
    rows, columns = x.shape
    y = torch.empty(rows, device=x.device)
    lanes_over_rows[(triton.cdiv(rows, 512),)](x, y, rows, columns, BLOCK=512, num_warps=8)
    return y
""",
)
_LONG_TILES: Final = kernel(
    """
@triton.jit
def long_tiles(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    across = tl.cdiv(columns, BLOCK)
    row = tl.program_id(0) // across
    column = tl.program_id(0) % across * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns)
    tl.store(y_ptr + column * rows + row, x, mask=column < columns)
""",
    """
def forward(self, x):
    rows, columns = x.shape
    y = torch.empty(columns, rows, device=x.device)
    long_tiles[(rows * triton.cdiv(columns, 1024),)](x, y, rows, columns, BLOCK=1024, num_warps=4)
    return y
""",
)
_BANKS: Final = kernel(
    """
@triton.jit
def one_bank(x_ptr, y_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    start = tl.program_id(0) * BLOCK
    x = tl.load(x_ptr + start + place)
    tl.store(y_ptr + start + place, tl.gather(x, place % 128 * 32 + place // 128, 0))
""",
    """
def forward(self, x):
    y = torch.empty(x.numel() // 4096, 32, 128, device=x.device)
    one_bank[(x.numel() // 4096,)](x, y, BLOCK=4096, num_warps=8)
    return y
""",
)


def _counted(pointers: str, value: str, size: int, name: str) -> str:
    return kernel(
        f"""
@triton.jit
def {name}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add({pointers}, {value}, mask=at < n, sem="relaxed")
""",
        f"""
def forward(self, x):
    y = torch.zeros({size}, dtype=torch.int32, device=x.device)
    n = x.numel()
    {name}[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024, num_warps=4)
    return y
""",
    )


MEMORY: Final = (
    OneFault("strided_affine", AFFINE, _STRIDED, ("uncoalesced",),
             "neighbouring lanes are 128 KiB apart: 32 sectors where 4 would do, on both sides"),
    OneFault("lanes_over_rows", ROW_SUM, _LANES_OVER_ROWS, ("uncoalesced",),
             "neighbouring lanes read neighbouring rows: a sector of 32 bytes for each 4"),
    OneFault("transposed_long_tiles", TRANSPOSE, _LONG_TILES, ("uncoalesced",),
             "reads along rows, so each lane's store goes to a sector of its own"),
    OneFault("one_half_a_thread", HALF_AFFINE, elementwise(AFFINE_VALUE, block=256, warps=8), ("narrow_loads",),
             "2 bytes a thread: too few are under way to fill the memory's pipe"),
    OneFault("off_by_one_half", HALF_SHIFTED, elementwise(AFFINE_VALUE, block=256, warps=4, x="x[1:]"),
             ("narrow_loads",), "the first element is not aligned, so that each load takes 2 bytes"),
    OneFault("one_bank", TILES, _BANKS, ("bank_conflicts",),
             "all lanes of a warp read one bank of shared memory: 32 passes for each load"),
    OneFault("one_address", TOTAL, _counted("y_ptr + at * 0", "x", 1, "one_address"), ("atomics",),
             "the additions of all warps to one number, one after the other"),
    OneFault("few_addresses", HISTOGRAM, _counted("y_ptr + x", "1", 32, "few_addresses"), ("atomics",),
             "four million additions to 32 numbers in one line of the L2"),
)  # fmt: skip

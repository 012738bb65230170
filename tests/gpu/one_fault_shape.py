"""Faults in how work is spread over the device: warps, blocks, waves, and registers that do not suffice."""

from typing import Final

from one_fault_case import MULTIPROCESSORS, TENSOR_CORES, OneFault, kernel, matmul, row_softmax
from one_fault_tasks import AFFINE, HORNER, LARGE_MATMUL, LONG_NORM, LONG_SOFTMAX, RAGGED_MATMUL, ROW_SUM, SOFTMAX


def _looping(blocks: int, block: int, warps: int, name: str) -> str:
    """Few programs that each go over much."""
    return kernel(
        f"""
@triton.jit
def {name}(x_ptr, y_ptr, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, PROGRAMS * BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(y_ptr + at, x * 2 + 1, mask=at < n)
""",
        f"""
def forward(self, x):
    y = torch.empty_like(x)
    {name}[({blocks},)](x, y, x.numel(), PROGRAMS={blocks}, BLOCK={block}, num_warps={warps})
    return y
""",
    )


_SOFTMAX_LOOP: Final = kernel(
    """
@triton.jit
def row_after_row(x_ptr, y_ptr, rows, PROGRAMS: tl.constexpr, COLS: tl.constexpr):
    for row in range(tl.program_id(0), rows, PROGRAMS):
        at = row * COLS + tl.arange(0, COLS)
        x = tl.load(x_ptr + at)
        p = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + at, p / tl.sum(p, axis=0))
""",
    f"""
def forward(self, x):
    y = torch.empty_like(x)
    row_after_row[({MULTIPROCESSORS},)](
        x, y, x.shape[0], PROGRAMS={MULTIPROCESSORS}, COLS=x.shape[1], num_warps=1
    )
    return y
""",
)
_EIGHT_SUMS: Final = kernel(
    """
@triton.jit
def eight_sums(x_ptr, y_ptr, rows, PROGRAMS: tl.constexpr, COLS: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, rows, PROGRAMS * BLOCK):
        row = start + tl.arange(0, BLOCK)
        at = row[:, None] * COLS + tl.arange(0, COLS)[None, :]
        x = tl.load(x_ptr + at, mask=row[:, None] < rows, other=0.0)
        tl.store(y_ptr + row, tl.sum(x, axis=1), mask=row < rows)
""",
    """
def forward(self, x):
    rows, columns = x.shape
    y = torch.empty(rows, device=x.device)
    eight_sums[(8,)](x, y, rows, PROGRAMS=8, COLS=columns, BLOCK=256, num_warps=32)
    return y
""",
)
_TAIL: Final = kernel(
    """
@triton.jit
def large_tiles(x_ptr, y_ptr, n, steps, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    t = x / (1 + tl.abs(x))
    p = tl.full((TILE,), 1.0, tl.float32)
    for _ in range(0, steps):
        p = p * t + 1
    tl.store(y_ptr + at, p, mask=at < n)
""",
    """
def forward(self, x):
    y = torch.empty_like(x)
    n = x.numel()
    large_tiles[(triton.cdiv(n, 16384),)](x, y, n, 512, TILE=16384, num_warps=32)
    return y
""",
)
_IMBALANCE: Final = kernel(
    """
@triton.jit
def unequal(x_ptr, y_ptr, n, SHARE: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    first = tl.where(program == 0, 0, TIMES * SHARE + (program - 1) * SHARE)
    end = tl.minimum(first + tl.where(program == 0, TIMES * SHARE, SHARE), n)
    for start in range(first, end, BLOCK):
        at = tl.multiple_of(start, BLOCK) + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(y_ptr + at, x * 2 + 1, mask=at < n)
""",
    """
def forward(self, x):
    y = torch.empty_like(x)
    n = x.numel()
    others = max(0, triton.cdiv(n - 20 * 65536, 65536))
    unequal[(1 + others,)](x, y, n, SHARE=65536, TIMES=20, BLOCK=4096, num_warps=8)
    return y
""",
)
_SPILLED_NORM: Final = kernel(
    """
@triton.jit
def row_norm(x_ptr, y_ptr, COLS: tl.constexpr):
    at = tl.program_id(0) * COLS + tl.arange(0, COLS)
    x = tl.load(x_ptr + at)
    x -= tl.sum(x, axis=0) / COLS
    tl.store(y_ptr + at, x / tl.sqrt(tl.sum(x * x, axis=0) / COLS + 1e-5))
""",
    """
def forward(self, x):
    y = torch.empty_like(x)
    row_norm[(x.shape[0],)](x, y, COLS=x.shape[1], num_warps=16, maxnreg=32)
    return y
""",
)

SHAPE: Final = (
    OneFault("one_warp_copy", AFFINE, _looping(MULTIPROCESSORS, 256, 1, "one_warp"), ("too_few_warps",),
             "one warp a multiprocessor: nothing hides the latency of its loads"),
    OneFault("one_warp_softmax", SOFTMAX, _SOFTMAX_LOOP, ("too_few_warps",),
             "one warp a multiprocessor goes from row to row and waits for each"),
    OneFault("sixteen_blocks", AFFINE, _looping(16, 8192, 32, "sixteen_blocks"), ("too_few_blocks",),
             "116 of 132 multiprocessors have nothing to do"),
    OneFault("eight_sums", ROW_SUM, _EIGHT_SUMS, ("too_few_blocks",), "124 of 132 multiprocessors have nothing to do"),
    OneFault("tail_of_one_tile", HORNER, _TAIL, ("tail_wave",),
             "133 equal blocks, one a multiprocessor: the last one runs alone and takes as long as all before"),
    OneFault("tail_of_four_tiles", RAGGED_MATMUL,
             matmul(m=128, n=256, k=64, warps=8, stages=3, dot=TENSOR_CORES), ("tail_wave",),
             "136 equal tiles, one a multiprocessor: four of them take a second wave"),
    OneFault("one_long_program", AFFINE, _IMBALANCE, ("imbalance",),
             "the first program does twenty times the work of each other one and outlasts them all"),
    OneFault("spilled_softmax", LONG_SOFTMAX, row_softmax(warps=16, more=", maxnreg=32"), ("spills",),
             "64 values a thread in 32 registers: the rest goes to memory and back"),
    OneFault("spilled_norm", LONG_NORM, _SPILLED_NORM, ("spills",),
             "64 values a thread in 32 registers: the rest goes to memory and back"),
    OneFault("spilled_tile", LARGE_MATMUL, matmul(m=128, n=256, k=64, warps=4, stages=3, dot=TENSOR_CORES),
             ("spills",), "a tile of 128 x 256 sums over four warps needs 256 registers a thread for the sums alone"),
)  # fmt: skip

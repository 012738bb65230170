"""What a one-fault kernel is, and the few lines that all of them share."""

from dataclasses import dataclass
from typing import Final

from one_fault_tasks import FaultTask

TRITON: Final = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
MULTIPROCESSORS: Final = 132
"""Of an H200: what grids that fill it badly are made for."""


@dataclass(frozen=True)
class OneFault:
    """A candidate, and the finding that must come first in its profile."""

    name: str
    task: FaultTask
    source: str
    kinds: tuple[str, ...]
    """One of these kinds of finding must come first; empty: it is healthy, and none may be told."""
    why: str
    """What the fault costs, or why there is none."""

    @property
    def on_cpu(self) -> bool:
        """Whether it runs, and has its fault, on a CPU too: operators of torch alone."""
        return "triton" not in self.source


def kernel(body: str, forward: str, *, constants: str = "") -> str:
    """A candidate with one or more Triton kernels.

    Args:
        body: the `@triton.jit` functions.
        forward: `def forward(self, …)` without its indent.
        constants: lines in front of the kernels.
    """
    lines = "\n".join(f"    {line}" for line in forward.strip("\n").splitlines())
    head = TRITON.rstrip("\n") + "\n\n" + (f"{constants.strip()}\n\n" if constants else "")
    return f"{head}\n{body.strip()}\n\n\nclass ModelNew(torch.nn.Module):\n{lines}\n"


def plain(forward: str, *, head: str = "") -> str:
    """A candidate in operators of torch."""
    lines = "\n".join(f"    {line}" for line in forward.strip("\n").splitlines())
    return f"import torch\n{head}\n\nclass ModelNew(torch.nn.Module):\n{lines}\n"


def elementwise(value: str, *, block: int, warps: int, x: str = "x") -> str:
    """One pass over an input, `block` elements a program; `value` is computed from `x`."""
    return kernel(
        f"""
@triton.jit
def elementwise(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {value}, mask=at < n)
""",
        f"""
def forward(self, x):
    x = {x}
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    elementwise[(triton.cdiv(n, {block}),)](x, y, n, BLOCK={block}, num_warps={warps})
    return y
""",
    )


def row_softmax(*, warps: int, more: str = "", x: str = "x", y: str = "p / tl.sum(p, axis=0)") -> str:
    """A program for each row, which it holds in registers; rows are a power of two long."""
    return kernel(
        f"""
@triton.jit
def row_softmax(x_ptr, y_ptr, COLS: tl.constexpr):
    at = tl.program_id(0) * COLS + tl.arange(0, COLS)
    x = tl.load(x_ptr + at)
    x = {x}
    p = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + at, ({y}).to(tl.float32))
""",
        f"""
def forward(self, x):
    y = torch.empty_like(x)
    row_softmax[(x.shape[0],)](x, y, COLS=x.shape[1], num_warps={warps}{more})
    return y
""",
    )


def matmul(*, m: int, n: int, k: int, warps: int, stages: int, dot: str) -> str:
    """Tiles of m x n over float16 matrices whose sizes they divide; neighbours share rows of tiles in the L2."""
    return kernel(
        f"""
@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    across = N // BN
    first = pid // (8 * across) * 8
    height = tl.minimum(M // BM - first, 8)
    rows = (first + pid % (8 * across) % height) * BM + tl.arange(0, BM)
    columns = pid % (8 * across) // height * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_at = a_ptr + rows[:, None] * K + depth[None, :]
    b_at = b_ptr + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(a_at)
        b = tl.load(b_at)
        {dot}
        a_at += BK
        b_at += BK * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.float16))
""",
        f"""
def forward(self, a, b):
    (rows, depth), columns = a.shape, b.shape[1]
    c = torch.empty(rows, columns, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(rows, {m}) * triton.cdiv(columns, {n}),)
    product[grid](
        a, b, c, rows, columns, depth, BM={m}, BN={n}, BK={k}, num_warps={warps}, num_stages={stages}
    )
    return c
""",
    )


TENSOR_CORES: Final = "total = tl.dot(a, b, total)"
AFFINE_VALUE: Final = "x * 2 + 1"
GELU_VALUE: Final = "0.5 * x * (1 + tl.erf(x * 0.7071067811865476))"

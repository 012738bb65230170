"""Kernels without a fault: a profile that finds something in one of these is wrong."""

from typing import Final

from one_fault_case import AFFINE_VALUE, GELU_VALUE, OneFault, elementwise, kernel, plain, row_softmax
from one_fault_tasks import AFFINE, GELU, HALF_AFFINE, LARGE_MATMUL, ROW_SUM, SOFTMAX

_ROW_SUM: Final = kernel(
    """
@triton.jit
def row_sum(x_ptr, y_ptr, rows, COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = row[:, None] * COLS + tl.arange(0, COLS)[None, :]
    x = tl.load(x_ptr + at, mask=row[:, None] < rows, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=1), mask=row < rows)
""",
    """
def forward(self, x):
    rows, columns = x.shape
    y = torch.empty(rows, device=x.device)
    row_sum[(triton.cdiv(rows, 64),)](x, y, rows, COLS=columns, BLOCK=64, num_warps=4)
    return y
""",
)

HEALTHY: Final = (
    OneFault("healthy_affine", AFFINE, elementwise(AFFINE_VALUE, block=1024, warps=4), (),
             "one pass in 16-byte loads, thousands of blocks"),
    OneFault("healthy_half", HALF_AFFINE, elementwise(AFFINE_VALUE, block=2048, warps=4), (),
             "sixteen float16 a thread in 16-byte loads"),
    OneFault("healthy_gelu", GELU, elementwise(GELU_VALUE, block=1024, warps=4), (),
             "fused: the input is read once, the answer written once"),
    OneFault("healthy_softmax", SOFTMAX, row_softmax(warps=4), (), "a row is read once and stays in registers"),
    OneFault("healthy_row_sum", ROW_SUM, _ROW_SUM, (), "lanes along the rows, many rows a block"),
    OneFault("healthy_matmul", LARGE_MATMUL, plain("def forward(self, a, b):\n    return torch.mm(a, b)"), (),
             "the library's product in float16"),
)  # fmt: skip

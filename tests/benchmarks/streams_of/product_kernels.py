"""Kernels of the streams that multiply matrices: the product itself, and the linear layer with its GELU.

The loops are the same; a task adds its arguments, what is done with a finished tile, and its model.
"""

from string import Template
from typing import Final

HEAD: Final = """import torch
import triton
import triton.language as tl


"""
HIGH_PART: Final = '''@triton.jit
def high_part(x):
    """The bits of x that TF32 keeps; the rest has the same sign."""
    return (x.to(tl.uint32, bitcast=True) & 0xFFFFE000).to(tl.float32, bitcast=True)


'''
PLACE: Final = """    across = tl.cdiv(N, BN)
    first = pid // (GROUP * across) * GROUP
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP)
    row = (first + pid % (GROUP * across) % height) * BM
    column = pid % (GROUP * across) // height * BN
"""
LOOP: Final = """    rows = row + tl.arange(0, BM)[:, None]
    columns = column + tl.arange(0, BN)[None, :]
    depth = tl.arange(0, BK)
    a_at = a_ptr + rows.to(tl.int64) * K + depth[None, :]
    b_at = b_ptr + $B_AT
    total = tl.zeros((BM, BN), tl.float32)
$REST    for k in range(0, K, BK):
        a = tl.load(a_at, mask=(rows < M) & (depth[None, :] < K - k), other=0.0)
        b = tl.load(b_at, mask=(columns < N) & (depth[:, None] < K - k), other=0.0)
$DOT        a_at += BK
        b_at += $B_STEP
$SUM$EPILOGUE    tl.store(c_ptr + rows.to(tl.int64) * N + columns, total, mask=(rows < M) & (columns < N))
"""
SIGNATURE: Final = """@triton.jit
def $NAME(
    a_ptr, b_ptr, c_ptr, ${EXTRA}M, N, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):
"""
TILE: Final = SIGNATURE + "    pid = tl.program_id(0)\n" + PLACE + LOOP
FLAT: Final = """    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
"""
DOTS: Final = {
    name: f'        total = tl.dot(a, b, total, input_precision="{name}")\n'
    for name in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
} | {
    "default": "        total = tl.dot(a, b, total)\n",
    "half": "        total = tl.dot(a.to(tl.float16), b.to(tl.float16), total)\n",
    "bfloat": "        total = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)\n",
    "half_sum": '        total = (total + tl.dot(a, b, input_precision="ieee")).to(tl.float16).to(tl.float32)\n',
    # Infinity has no rest, and must not meet one: infinity times zero is nan.
    "split": """        a_high, b_high = high_part(a), high_part(b)
        a_sound, b_sound = tl.where(a - a == 0, a_high, 0.0), tl.where(b - b == 0, b_high, 0.0)
        rest = tl.dot(tl.where(a - a == 0, a - a_high, 0.0), b_sound, rest, input_precision="tf32")
        rest = tl.dot(a_sound, tl.where(b - b == 0, b - b_high, 0.0), rest, input_precision="tf32")
        total = tl.dot(a_high, b_high, total, input_precision="tf32")
""",
    "split_finite": """        a_high, b_high = high_part(a), high_part(b)
        rest = tl.dot(a - a_high, b_high, rest, input_precision="tf32")
        rest = tl.dot(a_high, b - b_high, rest, input_precision="tf32")
        total = tl.dot(a_high, b_high, total, input_precision="tf32")
""",
    "one_sum": """        a_high, b_high = high_part(a), high_part(b)
        a_sound, b_sound = tl.where(a - a == 0, a_high, 0.0), tl.where(b - b == 0, b_high, 0.0)
        total = tl.dot(tl.where(a - a == 0, a - a_high, 0.0), b_sound, total, input_precision="tf32")
        total = tl.dot(a_sound, tl.where(b - b == 0, b - b_high, 0.0), total, input_precision="tf32")
        total = tl.dot(a_high, b_high, total, input_precision="tf32")
""",
    "one_sum_finite": """        a_high, b_high = high_part(a), high_part(b)
        total = tl.dot(a - a_high, b_high, total, input_precision="tf32")
        total = tl.dot(a_high, b - b_high, total, input_precision="tf32")
        total = tl.dot(a_high, b_high, total, input_precision="tf32")
""",
    "split_two": """        a_high, b_high = high_part(a), high_part(b)
        rest = tl.dot(a - a_high, b_high, rest, input_precision="tf32")
        total = tl.dot(a_high, b_high, total, input_precision="tf32")
""",
    "outer": "        total += tl.sum(a[:, :, None] * b[None, :, :], axis=1)\n",
}
"""How a step of the loop adds to its tile."""
B_ROWS: Final = {"B_AT": "depth[:, None] * N + columns", "B_STEP": "BK * N"}
B_COLUMNS: Final = {"B_AT": "columns.to(tl.int64) * K + depth[:, None]", "B_STEP": "BK"}


def kernel(
    *, dot: str, transposed: bool = False, form: str = TILE, name: str = "product", extra: str = "", epilogue: str = ""
) -> str:
    """The kernel's text.

    Args:
        dot: One of `DOTS`.
        transposed: Whether b comes as [N, K].
        form: `TILE`, or that with words exchanged.
        name: Of the function.
        extra: Further arguments, each with a comma and a blank behind it.
        epilogue: Lines between the loop and the store.
    """
    rest = "rest = " in DOTS[dot]
    values = {
        "NAME": name, "EXTRA": extra, "EPILOGUE": epilogue, "DOT": DOTS[dot],
        "REST": "    rest = tl.zeros((BM, BN), tl.float32)\n" if rest else "",
        "SUM": "    total += rest\n" if rest else "", **(B_COLUMNS if transposed else B_ROWS),
    }  # fmt: skip
    text = Template(form).substitute(values)
    return HEAD + (HIGH_PART if "high_part" in text else "") + text


def persistent(**more: str | bool) -> str:
    """As `kernel`, each program taking one tile after the other."""
    head = (
        "    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)\n"
        "    for pid in range(tl.program_id(0), tiles, tl.num_programs(0)):\n"
    )
    text = kernel(**more)
    before, body = text.split("    pid = tl.program_id(0)\n")
    return before + head + "".join(f"    {line}" for line in body.splitlines(keepends=True))


def tile(bm: int, bn: int, bk: int, warps: int, stages: int, group: int = 8) -> str:
    """The parameters of a launch."""
    return f"BM={bm}, BN={bn}, BK={bk}, GROUP={group}, num_warps={warps}, num_stages={stages}"

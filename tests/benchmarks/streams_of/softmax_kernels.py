"""Kernels of the softmax stream."""

from typing import Final

from stream_core import maker

HEAD: Final = """
import torch
import triton
import triton.language as tl


"""
ROW: Final = maker(
    HEAD
    + """@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + start + at, mask=inside, other=-float("inf")$LOAD)
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + start + at, powers / tl.sum(powers, axis=0), mask=inside$STORE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        softmax_rows[(rows,)](x, y, columns, BLOCK=block, num_warps=$WARPS)
        return y
""",
    WARPS=4,
    LOAD="",
    STORE="",
)
TILE: Final = maker(
    HEAD
    + """@triton.jit
def softmax_tile(x_ptr, y_ptr, rows, columns, R: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    at = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (at < columns)[None, :]
    place = row.to(tl.int64)[:, None] * columns + at[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=-1e30)
    powers = tl.exp(x - tl.max(x, axis=1)[:, None])
    powers = tl.where(inside, powers, 0.0)
    total = tl.sum(powers, axis=1)[:, None]
    tl.store(y_ptr + place, powers / total, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        softmax_tile[(triton.cdiv(rows, $R),)](x, y, rows, columns, R=$R, BLOCK=block, num_warps=$WARPS)
        return y
""",
    R=2,
    WARPS=8,
)
THREE: Final = maker(
    HEAD
    + """@triton.jit
def softmax_three(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0).to(tl.int64) * columns
    y_ptr += tl.program_id(0).to(tl.int64) * columns
    lanes = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for first in range(0, columns, BLOCK):
        x = tl.load(x_ptr + first + lanes, mask=first + lanes < columns, other=-float("inf"))
        top = tl.maximum(top, x)
    peak = tl.max(top, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        x = tl.load(x_ptr + first + lanes, mask=first + lanes < columns, other=-float("inf"))
        total += tl.exp(x - peak)
    whole = tl.sum(total, axis=0)
    for first in range(0, columns, BLOCK):
        x = tl.load(x_ptr + first + lanes, mask=first + lanes < columns, other=0.0)
        tl.store(y_ptr + first + lanes, tl.exp(x - peak) / whole, mask=first + lanes < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        softmax_three[(rows,)](x, y, columns, BLOCK=$BLOCK, num_warps=$WARPS)
        return y
""",
    BLOCK=1024,
    WARPS=4,
)
ONLINE: Final = maker(
    HEAD
    + """@triton.jit
def softmax_online(x_ptr, y_ptr, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    x_ptr += tl.program_id(0).to(tl.int64) * columns
    y_ptr += tl.program_id(0).to(tl.int64) * columns
    lanes = tl.arange(0, BLOCK)
    # Each lane keeps its own maximum and sum. They start at a finite number: -inf from itself would be nan.
    top = tl.full((BLOCK,), -3.0e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in tl.range(0, columns, BLOCK, num_stages=STAGES):
        x = tl.load(x_ptr + first + lanes, mask=first + lanes < columns, other=-float("inf"))
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
    peak = tl.max(top, axis=0)
    whole = tl.sum(total * tl.exp(top - peak), axis=0)
    for first in tl.range(0, columns, BLOCK, num_stages=STAGES):
        x = tl.load(x_ptr + first + lanes, mask=first + lanes < columns, other=0.0)
        tl.store(y_ptr + first + lanes, tl.exp(x - peak) / whole, mask=first + lanes < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        softmax_online[(rows,)](x, y, columns, BLOCK=$BLOCK, STAGES=$STAGES, num_warps=$WARPS)
        return y
""",
    BLOCK=1024,
    STAGES=1,
    WARPS=4,
)
PERSISTENT: Final = maker(
    HEAD
    + """@triton.jit
def softmax_persistent(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        start = columns.to(tl.int64) * row
        x = tl.load(x_ptr + start + at, mask=inside, other=-float("inf"))
        powers = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + start + at, powers / tl.sum(powers, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        programs = min(rows, 132 * $WAVES)
        softmax_persistent[(programs,)](x, y, rows, columns, BLOCK=block, STAGES=$STAGES, num_warps=$WARPS)
        return y
""",
    WAVES=2,
    STAGES=1,
    WARPS=8,
)
TWO_KERNELS: Final = maker(
    HEAD
    + """@triton.jit
def row_totals(x_ptr, top_ptr, total_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    top = tl.max(x, axis=0)
    tl.store(top_ptr + row, top)
    tl.store(total_ptr + row, tl.sum(tl.exp(x - top), axis=0))


@triton.jit
def divide(x_ptr, top_ptr, total_ptr, y_ptr, columns, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = at // columns
    x = tl.load(x_ptr + at, mask=at < count)
    top = tl.load(top_ptr + row, mask=at < count)
    total = tl.load(total_ptr + row, mask=at < count)
    tl.store(y_ptr + at, tl.exp(x - top) / total, mask=at < count)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        top = torch.empty(rows, dtype=x.dtype, device=x.device)
        total = torch.empty_like(top)
        block = triton.next_power_of_2(columns)
        row_totals[(rows,)](x, top, total, columns, BLOCK=block, num_warps=8)
        divide[(triton.cdiv(x.numel(), $BLOCK),)](x, top, total, y, columns, x.numel(), BLOCK=$BLOCK, num_warps=4)
        return y
""",
    BLOCK=1024,
)
LANES_OVER_ROWS: Final = maker(
    HEAD
    + """@triton.jit
def softmax_by_lane(x_ptr, y_ptr, rows, columns, R: tl.constexpr, W: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    start = row.to(tl.int64)[:, None] * columns + tl.arange(0, W)[None, :]
    here = (row < rows)[:, None]
    top = tl.full((R,), -float("inf"), tl.float32)
    for first in range(0, columns, W):
        inside = here & (first + tl.arange(0, W) < columns)[None, :]
        top = tl.maximum(top, tl.max(tl.load(x_ptr + start + first, mask=inside, other=-float("inf")), axis=1))
    top = tl.where(row < rows, top, 0.0)[:, None]
    total = tl.zeros((R,), tl.float32)
    for first in range(0, columns, W):
        inside = here & (first + tl.arange(0, W) < columns)[None, :]
        total += tl.sum(tl.exp(tl.load(x_ptr + start + first, mask=inside, other=-float("inf")) - top), axis=1)
    for first in range(0, columns, W):
        inside = here & (first + tl.arange(0, W) < columns)[None, :]
        powers = tl.exp(tl.load(x_ptr + start + first, mask=inside, other=0.0) - top)
        tl.store(y_ptr + start + first, powers / total[:, None], mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        softmax_by_lane[(triton.cdiv(rows, $R),)](x, y, rows, columns, R=$R, W=$W, num_warps=1)
        return y
""",
    R=32,
    W=8,
)

"""Kernels of the cross-entropy stream."""

from typing import Final

from stream_core import maker

HEAD: Final = """
import torch
import triton
import triton.language as tl


"""
MODEL: Final = """

class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        logits, labels = logits.contiguous(), labels.contiguous()
        rows, classes = logits.shape
        losses = logits.new_empty(rows)
"""
ROW: Final = maker(
    HEAD
    + """@triton.jit
def loss_rows(logits_ptr, labels_ptr, losses_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = row * classes
    at = tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + start + at, mask=at < classes, other=-float("inf"))
    peak = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - peak), axis=0)
    chosen = tl.load(logits_ptr + start + tl.load(labels_ptr + row))
    tl.store(losses_ptr + row, tl.log(total) - (chosen - peak))
"""
    + MODEL
    + """        block = triton.next_power_of_2(classes)
        loss_rows[(rows,)](logits, labels, losses, classes, BLOCK=block, num_warps=$WARPS)
        return losses
""",
    WARPS=8,
)
TWO_PASS: Final = maker(
    HEAD
    + """@triton.jit
def loss_two_pass(logits_ptr, labels_ptr, losses_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = row * classes
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for first in range(0, classes, BLOCK):
        at = first + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.load(logits_ptr + start + at, mask=at < classes, other=-float("inf")))
    peak = tl.max(top, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, classes, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(logits_ptr + start + at, mask=at < classes, other=-float("inf")) - peak)
    chosen = tl.load(logits_ptr + start + tl.load(labels_ptr + row))
    tl.store(losses_ptr + row, tl.log(tl.sum(total, axis=0)) - (chosen - peak))
"""
    + MODEL
    + """        loss_two_pass[(rows,)](logits, labels, losses, classes, BLOCK=$BLOCK, num_warps=$WARPS)
        return losses
""",
    BLOCK=1024,
    WARPS=4,
)
LANES: Final = maker(
    HEAD
    + """@triton.jit
def loss_one_pass(logits_ptr, labels_ptr, losses_ptr, classes$CONSTANT, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = row * classes
    # A maximum and a sum for each lane; finite at first, since -inf from itself would be nan.
    top = tl.full((BLOCK,), -3.0e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in tl.range(0, classes, BLOCK, num_stages=STAGES):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + start + at, mask=at < classes, other=-float("inf")$LOAD)
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
    peak = tl.max(top, axis=0)
    whole = tl.sum(total * tl.exp(top - peak), axis=0)
    chosen = tl.load(logits_ptr + start + tl.load(labels_ptr + row))
    tl.store(losses_ptr + row, tl.log(whole) - (chosen - peak))
"""
    + MODEL
    + """        block = min($BLOCK, triton.next_power_of_2(classes))
        loss_one_pass[(rows,)](
            logits, labels, losses, classes, BLOCK=block, STAGES=$STAGES, num_warps=$WARPS
        )
        return losses
""",
    BLOCK=4096,
    STAGES=1,
    WARPS=8,
    LOAD="",
    CONSTANT="",
)
SCALAR: Final = maker(
    HEAD
    + """@triton.jit
def loss_online(logits_ptr, labels_ptr, losses_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = row * classes
    top = -3.0e38
    total = 0.0
    for first in range(0, classes, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + start + at, mask=at < classes, other=-float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    chosen = tl.load(logits_ptr + start + tl.load(labels_ptr + row))
    tl.store(losses_ptr + row, tl.log(total) - (chosen - top))
"""
    + MODEL
    + """        loss_online[(rows,)](logits, labels, losses, classes, BLOCK=$BLOCK, num_warps=$WARPS)
        return losses
""",
    BLOCK=2048,
    WARPS=4,
)
PARTS: Final = maker(
    HEAD
    + """@triton.jit
def part_sums(logits_ptr, tops_ptr, totals_ptr, classes, PART: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    top = tl.full((BLOCK,), -3.0e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(part * PART, tl.minimum(classes, part * PART + PART), BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * classes + at, mask=at < classes, other=-float("inf"))
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
    peak = tl.max(top, axis=0)
    place = row * tl.num_programs(1) + part
    tl.store(tops_ptr + place, peak)
    tl.store(totals_ptr + place, tl.sum(total * tl.exp(top - peak), axis=0))


@triton.jit
def join(logits_ptr, labels_ptr, tops_ptr, totals_ptr, losses_ptr, classes, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    top = tl.load(tops_ptr + row * parts + at, mask=at < parts, other=-float("inf"))
    total = tl.load(totals_ptr + row * parts + at, mask=at < parts, other=0.0)
    peak = tl.max(top, axis=0)
    whole = tl.sum(total * tl.exp(top - peak), axis=0)
    chosen = tl.load(logits_ptr + row * classes + tl.load(labels_ptr + row))
    tl.store(losses_ptr + row, tl.log(whole) - (chosen - peak))
"""
    + MODEL
    + """        parts = triton.cdiv(classes, $PART)
        tops, totals = logits.new_empty(rows, parts), logits.new_empty(rows, parts)
        part_sums[(rows, parts)](logits, tops, totals, classes, PART=$PART, BLOCK=$BLOCK, num_warps=$WARPS)
        block = triton.next_power_of_2(parts)
        join[(rows,)](logits, labels, tops, totals, losses, classes, parts, BLOCK=block, num_warps=1)
        return losses
""",
    PART=8192,
    BLOCK=2048,
    WARPS=4,
)
PERSISTENT: Final = maker(
    HEAD
    + """@triton.jit
def loss_persistent(logits_ptr, labels_ptr, losses_ptr, rows, classes, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = classes.to(tl.int64) * row
        top = tl.full((BLOCK,), -3.0e38, tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, classes, BLOCK):
            at = first + tl.arange(0, BLOCK)
            x = tl.load(logits_ptr + start + at, mask=at < classes, other=-float("inf"))
            higher = tl.maximum(top, x)
            total = total * tl.exp(top - higher) + tl.exp(x - higher)
            top = higher
        peak = tl.max(top, axis=0)
        whole = tl.sum(total * tl.exp(top - peak), axis=0)
        chosen = tl.load(logits_ptr + start + tl.load(labels_ptr + row))
        tl.store(losses_ptr + row, tl.log(whole) - (chosen - peak))
"""
    + MODEL
    + """        programs = min(rows, 132 * $WAVES)
        loss_persistent[(programs,)](logits, labels, losses, rows, classes, BLOCK=$BLOCK, num_warps=$WARPS)
        return losses
""",
    WAVES=4,
    BLOCK=4096,
    WARPS=8,
)
BY_LANE: Final = maker(
    HEAD
    + """@triton.jit
def loss_by_lane(logits_ptr, labels_ptr, losses_ptr, rows, classes, R: tl.constexpr, W: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    start = row.to(tl.int64) * classes
    here = (row < rows)[:, None]
    top = tl.full((R,), -3.0e38, tl.float32)
    total = tl.zeros((R,), tl.float32)
    for first in range(0, classes, W):
        at = first + tl.arange(0, W)
        inside = here & (at < classes)[None, :]
        x = tl.load(logits_ptr + start[:, None] + at[None, :], mask=inside, other=-float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
        top = higher
    label = tl.load(labels_ptr + row, mask=row < rows, other=0)
    chosen = tl.load(logits_ptr + start + label, mask=row < rows, other=0.0)
    tl.store(losses_ptr + row, tl.log(total) - (chosen - top), mask=row < rows)
"""
    + MODEL
    + """        loss_by_lane[(triton.cdiv(rows, $R),)](logits, labels, losses, rows, classes, R=$R, W=$W, num_warps=1)
        return losses
""",
    R=32,
    W=32,
)

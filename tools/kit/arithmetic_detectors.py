"""Faults in what a kernel computes with: registers, types, tensor cores, atomics. Pure."""

import re
from typing import Final

from kernelgate.tools.kit.evidence import Evidence, Operator
from kernelgate.tools.kit.findings import Finding, amount, finding, gain
from kernelgate.tools.kit.occupancy import WARP_THREADS
from kernelgate.tools.kit.readings import (
    counted,
    dram_share,
    headroom,
    main_row,
    memory_bound,
    needed_bytes,
    own_kernels,
    share,
    short,
    times_needed,
    working,
)

SPILL_BYTES: Final = 32
"""Per thread: eight registers. Fewer are stored once, outside of loops, as a rule."""
SPILL_SECTORS: Final = 1.3
"""L1 moves less than this times the task's sectors: what is spilled is not used where the kernel works."""
DOMINANT: Final = 0.3
DOUBLES_BUSY: Final = 0.08
"""Share of the float64 pipe; a stray constant in float64 outside of loops stays far under it."""
DOUBLES_HEADROOM: Final = 1.3
IDLE_TENSOR: Final = 0.02
ATOMICS_HEADROOM: Final = 2.0
ATOMICS_UNSEEN_HEADROOM: Final = 3.0
"""Without counters an atomic may be one a block, which costs little: only far from the bound is it blamed."""
QUIET: Final = 0.3
_DOUBLE = re.compile(r"\bdouble\b|dgemm|d884gemm|_f64", re.IGNORECASE)
_OTHER_TYPES = re.compile(r"\b(?:float|half|bfloat16|Half|BFloat16)\b")
_PLAIN_PRODUCT = re.compile(r"sgemm|simt|ffma", re.IGNORECASE)
_TENSOR_NAME = re.compile(r"tensorop|s\d+gemm|hmma|wgmma|nvjet|tf32|bf16|fp16", re.IGNORECASE)


def spills(evidence: Evidence) -> Finding | None:
    """Values of the largest kernel lie in local memory, where it works."""
    op = main_row(evidence)
    if op is None or share(evidence, op) < DOMINANT:
        return None
    # Of an autotuned kernel whose configuration is not known: what each of them spills.
    spilled = min((kernel.spill_bytes for kernel in own_kernels(evidence, op)), default=0)
    sectors = times_needed(evidence, "l1_sectors")
    if spilled < SPILL_BYTES or (memory_bound(evidence) and sectors is not None and sectors < SPILL_SECTORS):
        return None
    threads = op.launch.blocks * op.launch.threads if op.launch is not None else 0
    through = 2 * threads * spilled
    times = max(2.0, 1 + through / needed_bytes(evidence))
    traffic = f", {amount(through / 1e6)} MB written and read back for {threads} threads" if threads else ""
    warps = f"num_warps={2 * op.launch.threads // WARP_THREADS}" if op.launch is not None else "twice the num_warps"
    return finding(
        "spills",
        f"{short(op.name)} spills {spilled} bytes per thread to local memory{traffic}",
        min(headroom(evidence), gain(share(evidence, op), times)),
        f"{short(op.name)}: halve a BLOCK size or launch with {warps}, so that a thread holds fewer live values; no "
        "maxnreg or __launch_bounds__ under what it needs; no local array with computed indices",
    )


def precision(evidence: Evidence) -> Finding | None:
    """Float64 in a task whose types need none."""
    pipe = counted(evidence, "fp64")
    # A binary may use float64 outside of its loops alone: the pipe tells. A kernel of torch is named for its type.
    believed = pipe is None or pipe >= DOUBLES_BUSY
    rows = [op for op in working(evidence) if _named_double(op.name) or (believed and _own_doubles(evidence, op))]
    part = sum(share(evidence, op) for op in rows)
    if part < DOMINANT or headroom(evidence) < DOUBLES_HEADROOM or evidence.workload.doubles:
        return None
    name = short(max(rows, key=lambda op: op.self_us).name)
    busy = f", its pipe {pipe:.0%} busy" if pipe is not None else ""
    return finding(
        "precision",
        f"{name} computes in float64{busy}: {part:.0%} of the time, and the task's types need none",
        min(headroom(evidence), gain(part, max(2.0, 1 / max(1 - (pipe or 0.0), 0.1)))),
        f"{name}: float32 accumulators and constants (tl.float32; 1.0f in CUDA, no tensor.double()); where a sum needs "
        "more digits, add pairwise or with compensation (Kahan)",
    )


def _named_double(name: str) -> bool:
    """Of float64 alone: one that converts between types is no sign of what is computed in."""
    return bool(_DOUBLE.search(name)) and not _OTHER_TYPES.search(name)


def _own_doubles(evidence: Evidence, op: Operator) -> bool:
    kernels = own_kernels(evidence, op)
    return bool(kernels) and all(kernel.doubles for kernel in kernels)


def tensor_cores_unused(evidence: Evidence) -> Finding | None:
    """Products of matrices without tensor cores, where they could serve."""
    op, tensor = main_row(evidence), counted(evidence, "tensor")
    if op is None or not evidence.tensor_cores_serve or memory_bound(evidence) or share(evidence, op) < DOMINANT:
        return None
    kernels = own_kernels(evidence, op)
    without = bool(kernels) and not any(kernel.tensor_cores for kernel in kernels)
    if tensor is not None:
        unused = tensor < IDLE_TENSOR
    else:
        unused = without or bool(_PLAIN_PRODUCT.search(op.name) and not _TENSOR_NAME.search(op.name))
    if not unused:
        return None
    seen = f"tensor cores are {tensor:.0%} busy" if tensor is not None else "its code has no matrix instruction"
    return finding(
        "tensor_cores_unused",
        f"{short(op.name)} takes {share(evidence, op):.0%} of {evidence.profile.call_us:.0f} µs for "
        f"{amount(evidence.workload.flops / 1e9)} Gflop; {seen}",
        min(headroom(evidence), gain(share(evidence, op), headroom(evidence))),
        f"{short(op.name)}: multiply with tl.dot on tiles of at least 16x16x16 (float16, bfloat16, or float32 with "
        'input_precision="tf32" where the task allows it), in CUDA mma; or torch.matmul in these types',
    )


def atomics(evidence: Evidence) -> Finding | None:
    """Threads wait for each other at atomic operations on global memory."""
    op = main_row(evidence)
    if op is None or share(evidence, op) < DOMINANT:
        return None
    kernels, times = own_kernels(evidence, op), headroom(evidence)
    if not kernels or not all(kernel.atomics for kernel in kernels):
        return None
    issue = counted(evidence, "issue")
    if issue is None and times < ATOMICS_UNSEEN_HEADROOM:
        return None
    if issue is not None and (issue > QUIET or (dram_share(evidence) or 0.0) > 0.5 or times < ATOMICS_HEADROOM):
        return None
    quiet = f"; only {issue:.0%} of the issue slots are taken" if issue is not None else ""
    return finding(
        "atomics",
        f"{short(op.name)} has atomics on global memory and {share(evidence, op):.0%} of the time of a call that takes "
        f"{times:.1f}x its bound{quiet}",
        min(times, gain(share(evidence, op), times)),
        f"{short(op.name)}: add up in registers (tl.sum) or shared memory first, then one tl.atomic_add a block; or "
        "write partial results and add them in a second kernel",
    )

"""Numbers that the detectors share, worked out from the evidence of a profile. Pure.

Of evidence that `cleaned` went over: a candidate wrote its rows, so they may hold anything.
"""

import re
from typing import Final, TypeVar, cast

from pydantic import BaseModel

from kernelgate.tools.kit.evidence import SECTOR_BYTES, Counter, Evidence, Inspected, Operator
from kernelgate.tools.kit.facts import Kernel
from kernelgate.tools.kit.findings import cut
from kernelgate.tools.kit.kernel_names import plain_name
from kernelgate.tools.kit.occupancy import LIMITS, WARP_THREADS, Occupancy, occupancy
from kernelgate.tools.kit.timing_report import bound_class, bound_us

PASS_SHARE: Final = 0.05
"""An operator that takes less of a call than this is no pass over memory that matters."""
LEAST: Final = 1e-12
"""Under any reading; its inverse is finite."""
MOST: Final = 10**15
"""Beyond any reading; products of a few such numbers are finite yet."""
MAX_NAME_CHARS: Final = 48
COPY_SHARE: Final = 0.85
"""What a large copy reaches of the data sheet's bandwidth where no ceiling was measured: 0.89 on an H200."""
CLOCK_CYCLES_US: Final = 1800.0
"""Of a multiprocessor, per µs; within a fifth on A100 to B200 under load. The evidence has no clock."""
ISSUE_PER_CYCLE: Final = 4
"""Warp instructions that a multiprocessor can issue: one for each sub-partition."""
REGISTER_STEP: Final = 16
"""Launches are told what they were given: on an H200 16 for a kernel of 10, 32 for one of 32."""
LAUNCH_US: Final = 2.5
"""The shortest kernel on an H200, where the device's own was not measured."""
_MATRIX = re.compile(r"gemm|gemv|cutlass|nvjet|xmma|cudnn|conv(?!ert)|winograd|matmul|\bmma\b|\bbmm\b", re.IGNORECASE)
_M = TypeVar("_M", bound=BaseModel)


def cleaned(model: _M) -> _M:
    """A copy without NaN, infinity, negative or absurd numbers and control characters, at every depth."""
    return model.model_copy(update={name: _clean(value) for name, value in model})


def _clean(value: object) -> object:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return min(max(value, 0), MOST)
    if isinstance(value, float):
        return min(value, float(MOST)) if value >= LEAST else 0.0
    if isinstance(value, str):
        return "".join(sign if sign.isprintable() else " " for sign in value)
    if isinstance(value, BaseModel):
        return cleaned(value)
    return _clean_many(value)


def _clean_many(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_clean(item) for item in cast("tuple[object, ...]", value))
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in cast("dict[object, object]", value).items()}
    return value


def working(evidence: Evidence) -> list[Operator]:
    """The rows that took time."""
    return [op for op in evidence.profile.operators if op.self_us > 0]


def memory_bound(evidence: Evidence) -> bool:
    """The task's bytes take longer than its operations, at the measured ceilings."""
    return bound_class(evidence.workload, evidence.ceilings, evidence.profile.call_us) == "memory"


def least_us(evidence: Evidence) -> float:
    """The larger of a call's roofline bound and the shortest piece of work there is."""
    return max(bound_us(evidence.workload, evidence.ceilings, evidence.profile.call_us), launch_us(evidence))


def headroom(evidence: Evidence) -> float:
    """Time of a call over the least that it could take; at least 1."""
    return max(1.0, evidence.profile.call_us / least_us(evidence))


def launch_us(evidence: Evidence) -> float:
    """Time of the shortest kernel."""
    return evidence.ceilings.launch_us or LAUNCH_US


def launches(evidence: Evidence) -> float:
    """Kernels, copies and fills of one call."""
    return sum(op.calls for op in working(evidence)) / max(evidence.profile.calls, 1)


def each_us(evidence: Evidence) -> float:
    """Mean time of one of them."""
    rows = working(evidence)
    return sum(op.self_us for op in rows) / max(sum(op.calls for op in rows), 1)


def main_row(evidence: Evidence) -> Operator | None:
    """The row that took the most time."""
    return max(working(evidence), key=lambda op: op.self_us, default=None)


def share(evidence: Evidence, op: Operator) -> float:
    """Of the time of all rows."""
    return op.self_us / max(sum(row.self_us for row in working(evidence)), 1e-9)


def large_rows(evidence: Evidence) -> list[Operator]:
    """Rows that take a share of a call worth speaking of."""
    profile = evidence.profile
    return [op for op in working(evidence) if op.self_us / max(profile.calls, 1) >= PASS_SHARE * profile.call_us]


def large_launches(evidence: Evidence) -> float:
    """How often a call runs one of those."""
    return sum(op.calls for op in large_rows(evidence)) / max(evidence.profile.calls, 1)


def short(name: str) -> str:
    """A kernel's plain name, so short that the rest of a line has room."""
    return cut(plain_name(name) or "a kernel without a name", MAX_NAME_CHARS)


def own_kernels(evidence: Evidence, op: Operator) -> list[Kernel]:
    """The candidate's binaries that a row may be of: several of an autotuned kernel whose launch does not tell."""
    named = [kernel for kernel in evidence.kernels if kernel.name == plain_name(op.name)]
    if op.launch is None:
        return named
    return [
        kernel
        for kernel in named
        if kernel.warps * WARP_THREADS == op.launch.threads and _is_allocation(op.launch.registers, kernel.registers)
    ]


def _is_allocation(registers: int, needed: int) -> bool:
    """Whether a launch that was given so many registers a thread may be of a kernel that needs those; 0: unknown."""
    return registers == 0 or needed <= registers < needed + REGISTER_STEP


def multiplies_matrices(evidence: Evidence, op: Operator) -> bool:
    """By its name or its instructions."""
    return bool(_MATRIX.search(plain_name(op.name))) or any(kernel.tensor_cores for kernel in own_kernels(evidence, op))


def counted(evidence: Evidence, name: Counter) -> float | None:
    """One counter; None without counters."""
    return evidence.counters.of(name) if evidence.counters is not None else None


def needed_bytes(evidence: Evidence) -> int:
    """What the task reads and writes."""
    return max(evidence.workload.bytes_in + evidence.workload.bytes_out, 1)


def times_needed(evidence: Evidence, name: Counter) -> float | None:
    """A counter of sectors, in times those that the task's bytes fill."""
    sectors = counted(evidence, name)
    return None if sectors is None else sectors * SECTOR_BYTES / needed_bytes(evidence)


def dram_share(evidence: Evidence) -> float | None:
    """Of what a large copy moves through DRAM a second: 1 is at the bound."""
    read, written = counted(evidence, "dram_read"), counted(evidence, "dram_write")
    if evidence.device is None or read is None or written is None:
        return None
    sheet = evidence.device.dram_gb_s
    copied = evidence.ceilings.copy_gb_s / sheet if sheet > 0 else 0.0
    return (read + written) / (copied if 0.3 < copied <= 1 else COPY_SHARE)


def dram_times_needed(evidence: Evidence) -> float | None:
    """Bytes through DRAM a call, in times those that the task needs; None if they are not known."""
    read, written = counted(evidence, "dram_read"), counted(evidence, "dram_write")
    if evidence.device is None or evidence.counters is None or read is None or written is None:
        return None
    moved = (read + written) * evidence.device.dram_gb_s * 1e3 * evidence.counters.call_us
    return moved / needed_bytes(evidence)


def instructions(evidence: Evidence) -> float | None:
    """Warp instructions of a call, to a fifth; None if they are not known."""
    issue = counted(evidence, "issue")
    if issue is None or evidence.counters is None or evidence.device is None:
        return None
    cycles = evidence.counters.call_us * CLOCK_CYCLES_US
    return issue * ISSUE_PER_CYCLE * evidence.device.multiprocessors * cycles


def inspected(evidence: Evidence) -> Inspected | None:
    """The longest launch that Nsight Compute saw; None where it did not look."""
    return max(evidence.inspected, key=lambda launch: launch.us, default=None)


def blocks(evidence: Evidence, op: Operator) -> int:
    """How many a launch of a row has; 0 if unknown."""
    return op.launch.blocks if op.launch is not None else 0


def fitting(evidence: Evidence, op: Operator) -> Occupancy | None:
    """Blocks and warps of a row's kernel that fit on a multiprocessor; None if its launch or the device is unknown."""
    if evidence.device is None or op.launch is None or evidence.device.target.rstrip("af") not in LIMITS:
        return None
    launch = op.launch
    if launch.threads < 1:
        return None
    kernel = Kernel(
        name="", target="", registers=launch.registers, spill_bytes=0, shared_bytes=launch.shared_bytes,
        warps=-(-launch.threads // WARP_THREADS), tensor_cores=False, vector_loads=False,
    )  # fmt: skip
    fits = occupancy(kernel, evidence.device.target)
    return fits if fits.blocks_per_sm > 0 else None

"""Faults in how kernels go through memory. Pure: evidence in, a finding or None out."""

from collections.abc import Sequence
from typing import Final

from kernelgate.tools.kit.evidence import Evidence, Inspected, Operator
from kernelgate.tools.kit.findings import Finding, amount, finding, gain
from kernelgate.tools.kit.readings import (
    CLOCK_CYCLES_US,
    counted,
    dram_share,
    dram_times_needed,
    headroom,
    inspected,
    instructions,
    large_launches,
    large_rows,
    main_row,
    memory_bound,
    multiplies_matrices,
    needed_bytes,
    own_kernels,
    share,
    short,
    times_needed,
)

WASTED: Final = 3.0
"""Sectors that L1 moves, in times of what a pass needs: three passes in one kernel reach 2, 4-byte lanes that each
touch a sector of their own 8, and a transpose with one such side 4.5."""
SPARSE: Final = 0.6
"""Instructions a sector. A copy with the widest loads, the leanest coalesced kernel, issues 0.67 on an H200; where each
lane touches another sector, one load moves 32: a plain transpose has 0.4. It tells
strided access from reading again, as pooling does."""
WASTED_UNSEEN: Final = 6.0
"""Without the count of instructions only so many times are believed, and only of sectors that L1 misses as often."""
CONFLICTED: Final = 0.8
"""Passes through shared memory an instruction. 128-bit loads of a register-blocked product stay under 0.5; a transpose
without padding reaches 2."""
USUAL_PASSES: Final = 0.2
"""An instruction, without conflicts."""
WASTED_SEEN: Final = 2.0
"""The same as Nsight Compute counts them, of each access by itself."""
CONFLICTS_SEEN: Final = 0.3
"""Of passes through shared memory, as Nsight Compute counts those that conflicts cause."""
SHARED_BUSY: Final = 0.2
"""Of the time: fewer passes through shared memory cost nothing."""
MOVED: Final = 1.6
"""Bytes through DRAM in times of what the task needs; a good kernel is at 0.5 (writes that stay in the L2) to 1.2."""
DOMINANT: Final = 0.5
LARGE_LAUNCHES: Final = 2
WITH_THE_HOST: Final = ("Memcpy HtoD", "Memcpy DtoH")
"""How copies between host and device are named."""
NARROW_HEADROOM: Final = 4.0
"""The width of loads explains no more than this: two bytes a lane cost a copy 2.9x on an H200."""
CACHE_BUSY: Final = 0.5
"""Of the L2's throughput; a copy through DRAM takes 0.47 on an H200, strided access 0.51 to 0.76."""
CACHE_OVER_DRAM: Final = 1.1
"""L2 in times of DRAM, shares of what they could sustain: 0.5 to 0.6 for kernels that stream, on an H200."""
LEAN: Final = 0.05
"""Of the issue slots: a load that touches 32 sectors keeps warps waiting; strided kernels took 0.01 to 0.03."""
MEMORY_KERNELS: Final = (
    "elementwise", "reduce", "softmax", "norm", "copy", "memcpy", "memset", "index", "catarray", "transpose",
    "triton_poi", "triton_red", "triton_per",
)  # fmt: skip
"""Parts of the names of kernels of torch and inductor that pass over memory once."""
EPILOGUE_SHARE: Final = 0.15


def uncoalesced(evidence: Evidence) -> Finding | None:
    """Neighbouring lanes touch distant addresses: sectors of which most bytes are not used."""
    op, times = main_row(evidence), times_needed(evidence, "l1_sectors")
    if op is None or not memory_bound(evidence) or multiplies_matrices(evidence, op):
        return None
    if (seen := inspected(evidence)) is not None and (
        wasted := _ratio(seen, "sectors", "sectors_ideal")
    ) >= WASTED_SEEN:
        said = f"global accesses of {short(seen.name)} touch {wasted:.1f}x the sectors that they would at best"
        return _uncoalesced(evidence, op, said, wasted)
    if times is None:
        return _seen_at_the_cache(evidence, op)
    times /= max(large_launches(evidence), 1)
    issued, sectors = instructions(evidence), counted(evidence, "l1_sectors")
    if issued and sectors:
        strided = times >= WASTED and issued / sectors < SPARSE
    else:
        strided = times >= WASTED_UNSEEN and (times_needed(evidence, "l1_misses") or 0.0) >= WASTED_UNSEEN
    if not strided:
        return None
    said = f"{short(op.name)} moves {times:.1f}x the 32-byte sectors that its {_mb(evidence)} need"
    return _uncoalesced(evidence, op, said, times)


def _seen_at_the_cache(evidence: Evidence, op: Operator) -> Finding | None:
    """Without a count of sectors: the L2 works far more than DRAM and the issue slots, for a task that streams."""
    cache, moved, issue = counted(evidence, "l2"), dram_share(evidence), counted(evidence, "issue")
    if cache is None or moved is None or issue is None or large_launches(evidence) >= LARGE_LAUNCHES:
        return None
    if cache < CACHE_BUSY or cache < CACHE_OVER_DRAM * moved or issue > LEAN:
        return None
    said = f"{short(op.name)} keeps the L2 {cache:.0%} busy for {moved:.0%} of what a copy moves through DRAM"
    return _uncoalesced(evidence, op, said, headroom(evidence))


def _uncoalesced(evidence: Evidence, op: Operator, said: str, times: float) -> Finding:
    return finding(
        "uncoalesced",
        f"{said}: neighbouring lanes touch distant addresses",
        min(headroom(evidence), gain(share(evidence, op), times)),
        f"{short(op.name)}: let the lanes of a warp run along the last, contiguous axis (tl.arange of tl.load and "
        "tl.store on stride 1); for a transpose go through a tile (tl.trans, or shared memory with rows of 33)",
    )


def _mb(evidence: Evidence) -> str:
    return f"{amount(needed_bytes(evidence) / 1e6)} MB"


def _ratio(launch: Inspected, above: str, below: str) -> float:
    under = launch.values.get(below, 0.0)
    return launch.values.get(above, 0.0) / under if under > 0 else 0.0


def bank_conflicts(evidence: Evidence) -> Finding | None:
    """Lanes of a warp wait for each other at the banks of shared memory."""
    seen = inspected(evidence)
    if seen is not None and seen.values.get("l1", 0.0) >= CACHE_BUSY:
        lost = _ratio(seen, "shared_excess", "shared_wavefronts")
        if lost < CONFLICTS_SEEN:
            return None
        all_of_them = seen.values["shared_wavefronts"]
        said = (
            f"{lost:.0%} of the {all_of_them:.3g} passes of {short(seen.name)} through shared memory are for conflicts"
        )
        return _conflicts(evidence, seen.name, said, gain(seen.values["l1"], 1 / (1 - min(lost, 0.99))))
    op, passes, issued = main_row(evidence), counted(evidence, "shared_wavefronts"), instructions(evidence)
    if op is None or evidence.counters is None or evidence.device is None or passes is None or not issued:
        return None
    # Tensor cores read shared memory without an instruction for each pass.
    if (counted(evidence, "tensor") or 0.0) > 0.02 or multiplies_matrices(evidence, op):
        return None
    cycles = evidence.device.multiprocessors * evidence.counters.call_us * CLOCK_CYCLES_US
    busy, each = min(1.0, passes / max(cycles, 1.0)), passes / issued
    if each < CONFLICTED or busy < SHARED_BUSY:
        return None
    said = (
        f"{short(op.name)} makes {passes:.3g} passes through shared memory a call, {each:.1f} an instruction: "
        f"{busy:.0%} of the time; one a load is enough"
    )
    return _conflicts(evidence, op.name, said, gain(busy, each / USUAL_PASSES))


def _conflicts(evidence: Evidence, kernel: str, said: str, times: float) -> Finding:
    return finding(
        "bank_conflicts",
        said,
        min(headroom(evidence), times),
        f"{short(kernel)}: pad the rows of its shared tile by one element ([32][33]) or swizzle them, so that the 32 "
        "lanes of a warp meet 32 banks",
    )


def many_passes(evidence: Evidence) -> Finding | None:
    """One kernel moves several times the bytes that the task needs through DRAM."""
    op, times = main_row(evidence), dram_times_needed(evidence)
    if op is None or times is None or not memory_bound(evidence):
        return None
    if times < MOVED or share(evidence, op) < DOMINANT or large_launches(evidence) >= LARGE_LAUNCHES:
        return None
    moving = min(1.0, dram_share(evidence) or 0.0)
    return finding(
        "many_passes",
        f"{short(op.name)} moves {times:.1f}x the {_mb(evidence)} that the task needs through DRAM: "
        f"{moving:.0%} of the time at its ceiling",
        min(headroom(evidence), gain(moving, times)),
        f"{short(op.name)}: read each input once, with all of a row in one block (BLOCK at least the row) or running "
        "sums (online softmax, Welford) instead of a second loop over memory; make tiles that are read again larger",
    )


def missed_fusion(evidence: Evidence) -> Finding | None:
    """Several kernels each pass over memory."""
    # What goes to the host and back is a wait's work: no kernel can take it in.
    rows = [op for op in large_rows(evidence) if not op.name.startswith(WITH_THE_HOST)]
    count = sum(op.calls for op in rows) / max(evidence.profile.calls, 1)
    if count < LARGE_LAUNCHES:
        return None
    if not memory_bound(evidence):
        return _epilogue(evidence)
    moved = dram_times_needed(evidence)
    # What is fused into the longest one costs little more than that alone, if no other fault is in it.
    longest_us = max(op.self_us / op.calls if op.calls else op.self_us for op in rows)
    saying = f", {moved:.1f}x the bytes that the task needs" if moved is not None and moved >= MOVED else ""
    return finding(
        "missed_fusion",
        f"{count:.0f} kernels a call each pass over memory{saying} ({_names(rows)}): "
        f"{evidence.profile.call_us:.0f} µs where {_mb(evidence)} need "
        f"{evidence.profile.call_us / headroom(evidence):.0f}",
        min(headroom(evidence), evidence.profile.call_us / max(longest_us, 1e-3)),
        "fuse them into one Triton kernel: load each input once, keep intermediate values in registers, store the "
        "result once",
    )


def _names(rows: Sequence[Operator]) -> str:
    """Two of them."""
    return ", ".join(list(dict.fromkeys(short(op.name) for op in rows))[:2])


def _epilogue(evidence: Evidence) -> Finding | None:
    """Passes over memory beside the products of matrices."""
    rows = large_rows(evidence)
    products = [op for op in rows if multiplies_matrices(evidence, op)]
    passes = [
        op for op in rows if op not in products and any(part in short(op.name).lower() for part in MEMORY_KERNELS)
    ]
    part = sum(share(evidence, op) for op in passes)
    if not products or part < EPILOGUE_SHARE:
        return None
    return finding(
        "missed_fusion",
        f"{part:.0%} of the time goes into passes over memory beside the products: {_names(passes)}",
        min(headroom(evidence), gain(part, 10.0)),
        f"do them in the epilogue of {short(products[0].name)}: a Triton tl.dot kernel that applies them to its "
        "accumulator before tl.store",
    )


def narrow_loads(evidence: Evidence) -> Finding | None:
    """The largest kernel reads at most 32 bits a lane at a time, in a task that memory bounds."""
    op = main_row(evidence)
    if op is None or share(evidence, op) < DOMINANT or not memory_bound(evidence):
        return None
    kernels, times = own_kernels(evidence, op), headroom(evidence)
    if not kernels or any(kernel.vector_loads for kernel in kernels) or times > NARROW_HEADROOM:
        return None
    moved = dram_share(evidence)
    if (moved or 0.0) > 0.9 or (counted(evidence, "l2") or 0.0) > CACHE_BUSY:
        return None
    busy = f"; it moves {moved:.0%} of what a copy does" if moved is not None else ""
    return finding(
        "narrow_loads",
        f"the binary of {short(op.name)} has no 64- or 128-bit load: at most 4 bytes a lane at a time for "
        f"{_mb(evidence)}{busy}",
        min(times, gain(share(evidence, op), times)),
        f"{short(op.name)}: load 16 bytes a lane: contiguous last axis in tl.load, a multiple of 16 in size "
        "(tl.multiple_of), BLOCK of 4 elements a thread or more; in CUDA float4",
    )

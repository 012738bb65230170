"""Faults in how work reaches the device and is spread over it. Pure: evidence in, a finding or None out."""

import math
from typing import Final

from kernelgate.tools.kit.evidence import Evidence
from kernelgate.tools.kit.findings import Finding, finding, gain
from kernelgate.tools.kit.occupancy import LIMITS, Limiter
from kernelgate.tools.kit.readings import (
    blocks,
    counted,
    dram_share,
    each_us,
    fitting,
    headroom,
    large_launches,
    launch_us,
    launches,
    main_row,
    multiplies_matrices,
    share,
    short,
)

WAIT_US: Final = 15.0
"""What the device idles while the host wakes and launches again, where no gap was measured."""
HOST_US: Final = 50.0
"""An ordinary forward in Python, its allocations and a launch of Triton or two take less; a busy host has that left."""
HOST_TIMES: Final = 2.0
"""Calls are timed launched ahead, so a little more of the host's time costs nothing that is measured."""
HOST_US_PER_LAUNCH: Final = 20.0
"""So much of the host's time is explained by each launch."""
MANY: Final = 8
SHORT_US: Final = 8.0
"""Three times the shortest kernel: launching is a third of it or more."""
DOMINANT: Final = 0.5
FEW_BLOCKS: Final = 0.8
"""Of the multiprocessors. One that launches a few less than one for each loses little."""
ENOUGH_WARPS: Final = 16
"""Resident on a multiprocessor: a quarter of what fits, with which loads of 4 bytes a lane hide most latency."""
FEW_WARPS: Final = 8
IDLE: Final = 0.85
"""Below this share of the busiest multiprocessor's time the others wait; 0.94 and more in full grids on an H200."""
FEW_WAVES: Final = 4
EXPLAINED: Final = 1.25
"""Idle time beyond this times what a partial wave explains is imbalance."""


def sync(evidence: Evidence) -> Finding | None:
    """A call makes the host wait for the device."""
    profile = evidence.profile
    if profile.waits < 0.5:
        return None
    alone_us = profile.busy_us or profile.call_us
    whole_us = max(profile.span_us, profile.host_us)
    if whole_us <= 0:
        whole_us = alone_us + profile.waits * WAIT_US
    times = whole_us / max(alone_us, 1e-3)
    return finding(
        "sync",
        f"forward makes the host wait for the device {profile.waits:.0f}x a call: {whole_us:.0f} µs as it comes, "
        f"{alone_us:.0f} µs of them work on the device",
        times,
        "drop .item(), .cpu(), torch.cuda.synchronize() and tests on tensor values in forward: keep the values on the "
        "device, as a tensor that the kernel loads, or torch.where",
    )


def host_time(evidence: Evidence) -> Finding | None:
    """The host needs longer to give a call to the device than the device for it."""
    profile = evidence.profile
    explained_us = launches(evidence) * HOST_US_PER_LAUNCH if many_launches(evidence) else 0.0
    # A host that is slower than any sleep at the front of a block lengthens the time of a call too.
    device_us = min(profile.busy_us or profile.call_us, profile.call_us)
    if profile.waits >= 0.5 or profile.host_us < max(HOST_US, HOST_TIMES * device_us, explained_us):
        return None
    return finding(
        "host_time",
        f"the host needs {profile.host_us:.0f} µs to give a call to the device, which works {device_us:.0f} µs: "
        "as calls come, the device waits",
        profile.host_us / max(device_us, launch_us(evidence), HOST_US),
        "move Python work out of forward: weights reshaped and kernel arguments worked out once in __init__, buffers "
        "kept, no loop over rows; or replay forward as a CUDA graph",
    )


def many_launches(evidence: Evidence) -> Finding | None:
    """Many kernels, each about as short as a launch."""
    count, mean_us, floor_us = launches(evidence), each_us(evidence), launch_us(evidence)
    if count < MANY or mean_us > SHORT_US:
        return None
    call_us = max(evidence.profile.call_us, evidence.profile.span_us)
    alone_us = evidence.profile.busy_us or call_us - (count - 1) * floor_us
    left_us = max(evidence.profile.call_us / headroom(evidence), floor_us, alone_us)
    return finding(
        "many_launches",
        f"{count:.0f} kernels a call of {mean_us:.1f} µs each, {call_us:.0f} µs in all; the shortest kernel takes "
        f"{floor_us:.1f} µs",
        call_us / left_us,
        "write them as one Triton kernel that keeps intermediate values in registers; where they must stay apart, "
        "capture forward once with torch.cuda.CUDAGraph and replay it",
    )


def too_few_blocks(evidence: Evidence) -> Finding | None:
    """The largest kernel has fewer blocks than the device has multiprocessors."""
    op = main_row(evidence)
    if op is None or evidence.device is None or share(evidence, op) < DOMINANT:
        return None
    count, most = blocks(evidence, op), evidence.device.multiprocessors
    active, busy = counted(evidence, "active"), counted(evidence, "busy")
    used = active / busy if active is not None and busy else None
    if not 0 < count < FEW_BLOCKS * most or (used is not None and used > count / most * EXPLAINED + 0.1):
        return None
    return finding(
        "too_few_blocks",
        f"{short(op.name)} launches {count} blocks on {most} multiprocessors: {1 - count / most:.0%} of them idle, for "
        f"{share(evidence, op):.0%} of the time",
        min(headroom(evidence), gain(share(evidence, op), most / count)),
        f"give {short(op.name)} a grid of at least {2 * most} blocks: smaller BLOCK sizes, or split the reduced axis "
        "over blocks (split-K) and add the partial results in a second pass",
    )


def too_few_warps(evidence: Evidence) -> Finding | None:
    """Too few warps are resident to hide the latency of memory, and no unit is busy."""
    op = main_row(evidence)
    if op is None or evidence.device is None or share(evidence, op) < DOMINANT or _matrix_work(evidence):
        return None
    fits, count = fitting(evidence, op), blocks(evidence, op)
    if fits is None or count < evidence.device.multiprocessors * FEW_BLOCKS:
        return None
    a_block = max(fits.warps_per_sm // fits.blocks_per_sm, 1)
    by_grid = -(-count // max(evidence.device.multiprocessors, 1)) * a_block
    expected = min(fits.warps_per_sm, by_grid)
    if expected > FEW_WARPS or (dram_share(evidence) or 0.0) > 0.7:
        return None
    limits = LIMITS[evidence.device.target.rstrip("af")]
    why = "its grid is small" if by_grid < fits.warps_per_sm else f"limited by its {_of(fits.limited_by)}"
    return finding(
        "too_few_warps",
        f"{expected} of {limits.warps} warps are resident on a multiprocessor in {short(op.name)}: {why}; too few "
        "loads are under way",
        min(headroom(evidence), gain(share(evidence, op), ENOUGH_WARPS / max(expected, 1))),
        f"{short(op.name)}: {_remedy(fits.limited_by, small_grid=by_grid < fits.warps_per_sm, warps=a_block)}",
    )


def _matrix_work(evidence: Evidence) -> bool:
    """Few warps are right where tensor cores do the work."""
    op = main_row(evidence)
    return (counted(evidence, "tensor") or 0.0) > 0.1 or (op is not None and multiplies_matrices(evidence, op))


def _of(limiter: Limiter) -> str:
    return {"registers": "registers", "shared_memory": "shared memory", "warps": "warps", "blocks": "block size"}[
        limiter
    ]


def _remedy(limiter: Limiter, *, small_grid: bool, warps: int) -> str:
    if small_grid:
        return f"num_warps={max(4, 2 * warps)} instead of {warps}, or smaller BLOCK sizes for more blocks"
    if limiter == "registers":
        return "smaller BLOCK sizes or more num_warps, so that a thread holds fewer values; or maxnreg=64"
    if limiter == "shared_memory":
        return "fewer num_stages or smaller BLOCK sizes, so that more blocks fit on a multiprocessor"
    return f"num_warps=4 or 8 (128 or 256 threads a block) instead of {warps}"


def _wave_loss(evidence: Evidence) -> tuple[float, int, int] | None:
    """Times longer than with full waves that the largest kernel takes, its blocks, and the blocks of a wave."""
    op = main_row(evidence)
    if op is None or evidence.device is None or share(evidence, op) < DOMINANT:
        return None
    fits = fitting(evidence, op)
    wave = fits.blocks_per_sm * evidence.device.multiprocessors if fits is not None else 0
    count = blocks(evidence, op)
    if wave < 1 or count <= wave:
        return None
    waves = count / wave
    return (math.ceil(waves) / waves, count, wave) if waves < FEW_WAVES else None


def tail_wave(evidence: Evidence) -> Finding | None:
    """The last wave of blocks leaves most of the device empty."""
    op, loss = main_row(evidence), _wave_loss(evidence)
    if op is None or loss is None or loss[0] < 1.2 or large_launches(evidence) >= 2:
        return None
    times, count, wave = loss
    idle = _idle(evidence)
    if idle is None:
        # Blocks that share a multiprocessor run faster in an emptier wave: only where they do not is the loss known.
        if times < 1.3 or evidence.device is None or wave > 2 * evidence.device.multiprocessors:
            return None
        idle = times
    elif idle < 1 / IDLE or idle > times * EXPLAINED:
        return None
    return finding(
        "tail_wave",
        f"{short(op.name)} has {count} blocks where {wave} run at a time: {count / wave:.2f} waves take the time of "
        f"{math.ceil(count / wave)}",
        min(headroom(evidence), gain(share(evidence, op), min(idle, times))),
        f"{short(op.name)}: a BLOCK size for a multiple of {wave} blocks, or many more, or a persistent kernel of "
        f"{wave} blocks that loops over the tiles",
    )


def _idle(evidence: Evidence) -> float | None:
    """The busiest multiprocessor's time over the mean; None if not counted."""
    active, busy = counted(evidence, "active"), counted(evidence, "busy")
    return busy / active if active and busy else None


def imbalance(evidence: Evidence) -> Finding | None:
    """Some blocks take much longer than others."""
    op, idle = main_row(evidence), _idle(evidence)
    if op is None or idle is None or evidence.device is None or share(evidence, op) < DOMINANT:
        return None
    loss = _wave_loss(evidence)
    explained = loss[0] if loss is not None else 1.0
    if blocks(evidence, op) < evidence.device.multiprocessors or idle < explained * EXPLAINED / IDLE:
        return None
    return finding(
        "imbalance",
        f"multiprocessors work {1 / idle:.0%} of the busiest one's time on average, with {blocks(evidence, op)} blocks "
        f"of {short(op.name)} for {evidence.device.multiprocessors} of them: some blocks take longer",
        min(headroom(evidence), gain(share(evidence, op), idle / explained)),
        f"{short(op.name)}: split long rows over several blocks, or let a persistent kernel take tiles from a counter "
        "(tl.atomic_add), longest first",
    )

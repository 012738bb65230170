"""How many blocks of a kernel fit on a multiprocessor, and what limits them. Pure arithmetic.

Limits per architecture: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
Rounding: the CUDA occupancy calculator and `cuda_occupancy.h` of the toolkit. Registers are given to a warp in units of
256; each of four sub-partitions has a quarter of the registers and holds whole warps; shared memory is given in units
of 128 bytes (before 8.0: 256), and from compute capability 8.0 on the system keeps 1 KiB of it per block.
"""

from typing import Final, Literal, TypeAlias

from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.facts import Kernel

Limiter: TypeAlias = Literal["registers", "shared_memory", "warps", "blocks"]

WARP_THREADS: Final = 32
REGISTER_UNIT: Final = 256
SUB_PARTITIONS: Final = 4
SHARED_UNIT_BYTES: Final = 128
SHARED_RESERVED_BYTES: Final = 1024
TURING_SHARED_UNIT_BYTES: Final = 256
KIB: Final = 1024


class Limits(Frozen):
    """What one multiprocessor of an architecture offers."""

    warps: int
    blocks: int
    registers: int = 65536
    shared_bytes: int
    """Shared memory of the multiprocessor, the system's share included."""
    block_shared_bytes: int
    """Most shared memory that one block may have, by opt-in."""
    block_warps: int = 32
    shared_unit_bytes: int = SHARED_UNIT_BYTES
    reserved_bytes: int = SHARED_RESERVED_BYTES


LIMITS: Final = {
    "sm_75": Limits(
        warps=32, blocks=16, shared_bytes=64 * KIB, block_shared_bytes=64 * KIB,
        shared_unit_bytes=TURING_SHARED_UNIT_BYTES, reserved_bytes=0,
    ),
    "sm_80": Limits(warps=64, blocks=32, shared_bytes=164 * KIB, block_shared_bytes=163 * KIB),
    "sm_86": Limits(warps=48, blocks=16, shared_bytes=100 * KIB, block_shared_bytes=99 * KIB),
    "sm_87": Limits(warps=48, blocks=16, shared_bytes=164 * KIB, block_shared_bytes=163 * KIB),
    "sm_89": Limits(warps=48, blocks=24, shared_bytes=100 * KIB, block_shared_bytes=99 * KIB),
    "sm_90": Limits(warps=64, blocks=32, shared_bytes=228 * KIB, block_shared_bytes=227 * KIB),
    "sm_100": Limits(warps=64, blocks=32, shared_bytes=228 * KIB, block_shared_bytes=227 * KIB),
    "sm_103": Limits(warps=64, blocks=32, shared_bytes=228 * KIB, block_shared_bytes=227 * KIB),
    "sm_120": Limits(warps=48, blocks=24, shared_bytes=100 * KIB, block_shared_bytes=99 * KIB),
    "sm_121": Limits(warps=48, blocks=24, shared_bytes=100 * KIB, block_shared_bytes=99 * KIB),
}  # fmt: skip

LOW_SHARE: Final = 0.25
"""Below a quarter of the warps too little is in flight to hide memory latency, unless tensor cores do the work."""


class Occupancy(Frozen):
    """Blocks and warps that fit on one multiprocessor at a time."""

    blocks_per_sm: int
    warps_per_sm: int
    share: float
    """Of the warps that the multiprocessor could hold, from 0 to 1."""
    limited_by: Limiter


def limits_of(target: str) -> Limits:
    """The limits of an architecture such as `sm_90` or `sm_90a`; raises ValueError for one not in the table."""
    limits = LIMITS.get(target.rstrip("af"))
    if limits is None:
        raise ValueError(f"no limits are known for {target}; known are {', '.join(sorted(LIMITS))}")
    return limits


def why_unknown(kernel: Kernel) -> str:
    """Why the occupancy of a kernel cannot be told; empty if it can."""
    if kernel.target.rstrip("af") not in LIMITS:
        return f"occupancy on {kernel.target} is unknown: its limits are not in the table of this version"
    if kernel.warps < 1:
        return "occupancy of kernels in C++ and CUDA sources is unknown: the size of a block is decided at the launch"
    return "" if kernel.registers else "occupancy is unknown where registers are"


def occupancy(kernel: Kernel, target: str) -> Occupancy:
    """The theoretical occupancy of a kernel; raises ValueError for an unknown target or a kernel without warps."""
    limits = limits_of(target)
    if kernel.warps < 1:
        raise ValueError(f"kernel {kernel.name} has {kernel.warps} warps per block; at least one is needed")
    fitting: dict[Limiter, int] = {
        "warps": limits.warps // kernel.warps,
        "blocks": limits.blocks,
        "registers": _blocks_by_registers(kernel, limits),
        "shared_memory": _blocks_by_shared_memory(kernel, limits),
    }
    limiter = min(fitting, key=lambda name: fitting[name])
    blocks = fitting[limiter]
    warps = blocks * kernel.warps
    return Occupancy(blocks_per_sm=blocks, warps_per_sm=warps, share=warps / limits.warps, limited_by=limiter)


def _blocks_by_registers(kernel: Kernel, limits: Limits) -> int:
    if kernel.registers < 1:
        return limits.blocks
    per_warp = _round_up(kernel.registers * WARP_THREADS, REGISTER_UNIT)
    warps = limits.registers // SUB_PARTITIONS // per_warp * SUB_PARTITIONS
    return warps // kernel.warps


def _blocks_by_shared_memory(kernel: Kernel, limits: Limits) -> int:
    if kernel.shared_bytes > limits.block_shared_bytes:
        return 0
    taken = _round_up(kernel.shared_bytes + limits.reserved_bytes, limits.shared_unit_bytes)
    return limits.shared_bytes // taken if taken else limits.blocks


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def advice(kernel: Kernel, occupancy: Occupancy | None) -> tuple[str, ...]:
    """At most one line on what to change, the gravest first; empty if nothing stands out. None: it is unknown."""
    if occupancy is not None and occupancy.blocks_per_sm == 0:
        return (f"it does not fit on a multiprocessor: {_remedy(occupancy.limited_by)}",)
    if kernel.spill_bytes > 0:
        return (
            f"{kernel.spill_bytes} bytes per thread lie in local memory: use smaller blocks, fewer live values, "
            "or more warps per block",
        )
    if occupancy is not None and occupancy.share < LOW_SHARE and not kernel.tensor_cores:
        return (f"only {occupancy.share:.0%} of the warps fit: {_remedy(occupancy.limited_by)}",)
    if not kernel.vector_loads:
        return (
            "global memory is read in pieces of at most 32 bits per thread: make the last dimension contiguous, its "
            "size a multiple of 16 bytes, or give each thread more elements",
        )
    return ()


def _remedy(limiter: Limiter) -> str:
    remedies: dict[Limiter, str] = {
        "registers": "its registers limit it; use smaller blocks or more warps per block",
        "shared_memory": "its shared memory limits it; use smaller blocks or fewer pipeline stages (num_stages)",
        "warps": "its blocks are too large; use fewer warps per block",
        "blocks": "its blocks are too small; use more warps per block",
    }
    return remedies[limiter]

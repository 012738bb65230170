"""What a diagnosis says: the class of a call's bottleneck and the finding of a detector. Pure."""

import math
from typing import Final, Literal, TypeAlias

from pydantic import Field

from kernelgate.tasks.model import Frozen

BoundClass: TypeAlias = Literal[
    "", "memory", "dram", "l2", "compute", "tensor_idle", "latency", "spill", "launch", "host", "tail", "sync"
]
"""`memory`: of the CPU. `l2`: the caches, L1 and shared memory included. `latency`: no unit is busy. `tail`: some
multiprocessors wait for others. `""`: nothing is known."""
FindingKind: TypeAlias = Literal[
    "uncoalesced", "narrow_loads", "bank_conflicts", "spills", "too_few_warps", "too_few_blocks", "tail_wave",
    "imbalance", "many_passes", "missed_fusion", "precision", "atomics", "tensor_cores_unused", "many_launches",
    "host_time", "sync", "overhead", "one_operator",
]  # fmt: skip
MAX_EVIDENCE_CHARS: Final = 200
MAX_CHANGE_CHARS: Final = 300
FULL_DIGITS: Final = 100
"""From here on three digits are all digits in front of the point."""
MAX_HEADROOM: Final = 1e6
"""More is a forged or an empty reading, not a gain."""


class Finding(Frozen):
    """One fault."""

    kind: FindingKind
    evidence: str = Field(max_length=MAX_EVIDENCE_CHARS)
    """One line with numbers."""
    headroom: float = Field(ge=1, allow_inf_nan=False)
    """Times faster it could become if this were solved: an estimate from the roofline or the share of the time."""
    change: str = Field(max_length=MAX_CHANGE_CHARS)
    """One concrete thing to try."""


def finding(kind: FindingKind, evidence: str, headroom: float, change: str) -> Finding:
    """A finding whose texts and headroom keep their bounds, whatever a candidate called its kernels."""
    gain = min(max(1.0, headroom), MAX_HEADROOM) if math.isfinite(headroom) else 1.0
    return Finding(
        kind=kind, evidence=cut(evidence, MAX_EVIDENCE_CHARS), headroom=gain, change=cut(change, MAX_CHANGE_CHARS)
    )


def amount(value: float) -> str:
    """Three digits, and never a power of ten: `0.512`, `41.2`, `3910`."""
    return f"{value:.0f}" if abs(value) >= FULL_DIGITS else f"{value:.3g}"


def cut(text: str, most: int) -> str:
    """At most so many characters, with a mark where some are gone."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def gain(share: float, factor: float) -> float:
    """Amdahl: times faster a call becomes if `share` of its time becomes `factor` times faster; at least 1."""
    left = 1 - min(max(share, 0.0), 1.0) * (1 - 1 / max(factor, 1.0))
    return 1 / max(left, 1 / MAX_HEADROOM)

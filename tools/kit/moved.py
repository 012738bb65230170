"""What moved from one profile to another, in one line. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from kernelgate.tools.kit.evidence import Counter
from kernelgate.tools.kit.findings import Finding, amount

TOLD: Final[Mapping[Counter, str]] = {
    "dram_read": "DRAM reads", "dram_write": "DRAM writes", "l2": "L2", "l1": "L1", "issue": "instructions issued",
    "tensor": "tensor cores", "active": "multiprocessors at work",
}  # fmt: skip
LEAST: Final = 0.05
"""Shares and times that differ by less have not moved: two profiles of one candidate differ by about so much."""
MOST: Final = 3
"""Counters that are told."""


class Profile(Protocol):
    """Of a profile's report."""

    @property
    def call_us(self) -> float | None:
        """Of one call."""
        ...

    @property
    def launches(self) -> float:
        """Kernels, copies and fills of a call; 0 if unknown."""
        ...

    @property
    def counters(self) -> Mapping[Counter, float]:
        """As shares of what the unit could sustain, and others."""
        ...

    @property
    def findings(self) -> Sequence[Finding]:
        """At most two."""
        ...


def moved(before: Profile, after: Profile) -> str:
    """`a call 82 → 41 µs, kernels 3 → 1, DRAM reads 21 % → 44 %; gone: missed_fusion`; what stayed is left out."""
    said: list[str] = []
    if before.call_us and after.call_us:
        stayed = abs(after.call_us / before.call_us - 1) < LEAST
        said.append(
            "the same time a call" if stayed else f"a call {amount(before.call_us)} → {amount(after.call_us)} µs"
        )
    if before.launches and after.launches and round(before.launches) != round(after.launches):
        said.append(f"launches {before.launches:.0f} → {after.launches:.0f}")
    both: list[Counter] = [name for name in TOLD if name in before.counters and name in after.counters]
    changed: dict[Counter, float] = {name: after.counters[name] - before.counters[name] for name in both}
    most = sorted(changed, key=lambda name: -abs(changed[name]))[:MOST]
    said += [
        f"{TOLD[name]} {before.counters[name]:.0%} → {after.counters[name]:.0%}"
        for name in most
        if abs(changed[name]) >= LEAST
    ]
    were, are = ({finding.kind for finding in side.findings} for side in (before, after))
    gone, new = sorted(were - are), sorted(are - were)
    return "; ".join(
        part
        for part in (
            ", ".join(said),
            f"gone: {', '.join(gone)}" if gone else "",
            f"new: {', '.join(new)}" if new else "",
        )
        if part
    )

"""What slows a call on the CPU, from its time by operator of torch. Pure: evidence in, a finding or None out."""

from typing import Final

from kernelgate.tools.kit.evidence import Evidence
from kernelgate.tools.kit.findings import Finding, finding
from kernelgate.tools.kit.readings import PASS_SHARE, working
from kernelgate.tools.kit.timing_report import bound_class, bound_us

SMALL_OPERATOR_US: Final = 5.0
"""An operator call shorter than this is mostly dispatch."""
DOMINANT_SHARE: Final = 0.4


def roofline_headroom(evidence: Evidence) -> float:
    """Time of a call over its roofline bound, at least 1; 1 if there is no bound."""
    call_us = evidence.profile.call_us
    least_us = bound_us(evidence.workload, evidence.ceilings, call_us)
    return max(1.0, call_us / least_us) if least_us > 0 else 1.0


def overhead(evidence: Evidence) -> Finding | None:
    """Many operators too short for their dispatch."""
    rows, profile = working(evidence), evidence.profile
    calls = sum(op.calls for op in rows) / profile.calls
    each_us = sum(op.self_us for op in rows) / profile.calls / max(calls, 1e-9)
    if each_us >= SMALL_OPERATOR_US or calls < 3:
        return None
    return finding(
        "overhead",
        f"{calls:.0f} operator calls of {each_us:.1f} µs each: dispatch costs more than arithmetic",
        calls / 2,
        "fuse: fewer, larger operators, or one kernel for the whole of forward",
    )


def many_passes(evidence: Evidence) -> Finding | None:
    """Several operators that each go over memory, in a task that memory bounds."""
    profile = evidence.profile
    large = [op for op in working(evidence) if op.self_us / profile.calls >= PASS_SHARE * profile.call_us]
    passes = sum(op.calls for op in large) / profile.calls
    if bound_class(evidence.workload, evidence.ceilings, profile.call_us) != "memory" or passes < 2.5:
        return None
    names = ", ".join(list(dict.fromkeys(op.name for op in large))[:4])
    return finding(
        "many_passes",
        f"about {passes:.0f} passes over memory a call ({names}), where one is needed",
        roofline_headroom(evidence),
        "fuse the passes: compute row by row while the data is in cache, write each result once",
    )


def one_operator(evidence: Evidence) -> Finding | None:
    """One operator that takes most of a call."""
    largest = max(working(evidence), key=lambda op: op.share, default=None)
    if largest is None or largest.share < DOMINANT_SHARE:
        return None
    copies = "copy" in largest.name or "clone" in largest.name
    return finding(
        "one_operator",
        f"{largest.name} takes {largest.share:.0%} of {evidence.profile.call_us:.0f} µs a call",
        1 / max(1e-6, 1 - largest.share * (1 - 1 / roofline_headroom(evidence))),
        f"replace or restructure {largest.name}: "
        + ("fewer or smaller copies" if copies else "use a fused or in-place form, a better layout or fewer elements"),
    )

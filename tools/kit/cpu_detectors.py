"""What slows a call on the CPU, from its time by operator of torch. Pure: evidence in, a finding or None out."""

import re
from typing import Final

from kernelgate.tools.kit.evidence import Evidence, Operator
from kernelgate.tools.kit.findings import Finding, amount, finding, gain
from kernelgate.tools.kit.readings import PASS_SHARE, memory_bound, needed_bytes, short, working
from kernelgate.tools.kit.timing_report import bound_us, reached

SMALL_OPERATOR_US: Final = 5.0
"""An operator call shorter than this is mostly dispatch."""
DOMINANT_SHARE: Final = 0.4
DOUBLES_SHARE: Final = 0.5
"""Of the operators' time: less is a sum that is kept exact."""
HOST_SHARE: Final = 0.5
LEAST_HOST_US: Final = 20.0
HOST_US_PER_OPERATOR: Final = 5.0
"""Calling an operator from Python takes less."""
BESIDE_SHARE: Final = 0.25
"""Of a call: less beside the products is not worth a candidate."""
NEAR_CEILING: Final = 1.2
"""A product within so much of the measured rate."""
_PRODUCT: Final = re.compile(r"mm\b|mv\b|matmul|linear|conv(?!ert)|einsum")
"""Operators of torch that multiply matrices."""


def roofline_headroom(evidence: Evidence) -> float:
    """Time of a call over its roofline bound, at least 1; 1 if there is no bound."""
    call_us = evidence.profile.call_us
    least_us = bound_us(evidence.workload, evidence.ceilings, call_us)
    return max(1.0, call_us / least_us) if least_us > 0 else 1.0


def host_time(evidence: Evidence) -> Finding | None:
    """Most of a call lies outside torch's operators."""
    profile = evidence.profile
    calls = sum(op.calls for op in working(evidence)) / profile.calls
    within_us = sum(op.self_us for op in working(evidence)) / profile.calls
    rest_us = profile.call_us - within_us
    if rest_us < max(HOST_SHARE * profile.call_us, LEAST_HOST_US + calls * HOST_US_PER_OPERATOR):
        return None
    return finding(
        "host_time",
        f"torch's operators take {amount(within_us)} of {profile.call_us:.0f} µs a call: the rest is Python",
        min(roofline_headroom(evidence), profile.call_us / max(within_us, 1e-3)),
        "move Python work out of forward: no loop over rows or elements, constants and reshaped weights made once in "
        "__init__, whole tensors given to operators of torch",
    )


def overhead(evidence: Evidence) -> Finding | None:
    """Many operators too short for their dispatch."""
    rows, profile = working(evidence), evidence.profile
    calls = sum(op.calls for op in rows) / profile.calls
    each_us = sum(op.self_us for op in rows) / profile.calls / max(calls, 1e-9)
    if each_us >= SMALL_OPERATOR_US or calls < 3:
        return None
    # Arithmetic beside them is not saved with their dispatch.
    stays_us = sum(op.self_us for op in rows if op.self_us / max(op.calls, 1) >= SMALL_OPERATOR_US) / profile.calls
    return finding(
        "overhead",
        f"{calls:.0f} operator calls of {each_us:.1f} µs each: dispatch costs more than arithmetic",
        min(calls / 2, roofline_headroom(evidence), profile.call_us / max(stays_us, 1e-3)),
        "fuse: fewer, larger operators, or one kernel for the whole of forward",
    )


def precision(evidence: Evidence) -> Finding | None:
    """A detour through float64 that the task's types do not ask for."""
    profile, part = evidence.profile, min(evidence.profile.doubles_share, 1.0)
    if part < DOUBLES_SHARE or evidence.workload.doubles:
        return None
    largest = max(working(evidence), key=lambda op: op.share, default=None)
    most = "" if largest is None else f", most of it in {short(largest.name)}"
    return finding(
        "precision",
        f"{part:.0%} of the operators' time of {profile.call_us:.0f} µs a call goes into float64{most}, and the "
        "task's types need none",
        min(roofline_headroom(evidence), gain(part, 2.0)),
        "stay in float32: no .double(), dtype=torch.float64 or float64 constants. torch.sum adds in a cascade, which "
        "keeps most digits; given a type, a sum copies its whole input: convert small results alone",
    )


def copies(evidence: Evidence) -> Finding | None:
    """Copying that takes most of a call."""
    largest = _largest(evidence)
    if largest is None or not ("copy" in largest.name or "clone" in largest.name):
        return None
    change = (
        "fewer or smaller copies: no .clone() or .contiguous() of what is only read, answers written in place or "
        "through out="
    )
    return _one(evidence, largest, roofline_headroom(evidence), change)


def many_passes(evidence: Evidence) -> Finding | None:
    """Several operators that each go over memory, in a task that memory bounds."""
    profile = evidence.profile
    large = [op for op in working(evidence) if op.self_us / profile.calls >= PASS_SHARE * profile.call_us]
    passes = sum(op.calls for op in large) / profile.calls
    if not memory_bound(evidence) or passes < 2.5:
        return None
    names = ", ".join(list(dict.fromkeys(short(op.name) for op in large))[:3])
    # What is fused costs little more than the longest pass alone, whose arithmetic stays.
    longest_us = max(op.self_us / max(op.calls, 1) for op in large)
    return finding(
        "many_passes",
        f"about {passes:.0f} passes over memory a call ({names}), where one is needed: {profile.call_us:.0f} µs where "
        f"{amount(needed_bytes(evidence) / 1e6)} MB need {profile.call_us / roofline_headroom(evidence):.0f}",
        min(roofline_headroom(evidence), profile.call_us / max(longest_us, 1e-3)),
        "fuse the passes: one operator of torch that does it all, or torch.compile; else go over chunks of rows that "
        "fit the cache (x.split(64)), with in-place operators on one buffer",
    )


def beside_products(evidence: Evidence) -> Finding | None:
    """Several passes over memory before or behind the products of a task that arithmetic bounds."""
    profile = evidence.profile
    large = [op for op in working(evidence) if op.self_us / profile.calls >= PASS_SHARE * profile.call_us]
    passes = [op for op in large if not _PRODUCT.search(op.name)]
    count = sum(op.calls for op in passes) / profile.calls
    if memory_bound(evidence) or count < 2 or len(passes) == len(large):
        return None
    part = sum(op.share for op in passes)
    if part < BESIDE_SHARE:
        return None
    longest = max(op.share / max(op.calls / profile.calls, 1) for op in passes)
    names = ", ".join(short(op.name) for op in passes[:3])
    return finding(
        "missed_fusion",
        f"{part:.0%} of {profile.call_us:.0f} µs a call goes into {count:.0f} passes over memory beside the products "
        f"({names})",
        min(roofline_headroom(evidence), 1 / max(1 - part + longest, 1e-6)),
        "do them in one pass over the product: torch's own operator for all of it (gelu, silu, layer_norm), "
        "torch.compile, or in place on chunks of rows while they are in cache",
    )


def one_operator(evidence: Evidence) -> Finding | None:
    """One operator that takes most of a call, and more than its work needs."""
    largest = _largest(evidence)
    if largest is None:
        return None
    if memory_bound(evidence) or not _PRODUCT.search(largest.name):
        change = (
            "its arithmetic or its order of access takes the time, not the bandwidth: an operator that does less for "
            "each element, contiguous rows, or torch.compile, which makes a vectorised loop of its own"
        )
        return _one(evidence, largest, roofline_headroom(evidence), change)
    profile = evidence.profile
    own_us = largest.self_us / profile.calls
    times = own_us / max(bound_us(evidence.workload, evidence.ceilings, profile.call_us), 1e-3)
    if times <= NEAR_CEILING:
        return None  # a library's product at its rate is no fault, however long it takes
    change = (
        "contiguous operands in the layout that it wants, one large product instead of several, the bias or scale "
        "added in it (addmm, baddbmm), or fewer operations"
    )
    return _one(evidence, largest, times, change)


def _largest(evidence: Evidence) -> Operator | None:
    largest = max(working(evidence), key=lambda op: op.share, default=None)
    return largest if largest is not None and largest.share >= DOMINANT_SHARE else None


def _one(evidence: Evidence, op: Operator, times: float, change: str) -> Finding:
    """Of an operator that could be so many times faster."""
    now = reached(evidence.workload, evidence.ceilings, evidence.profile.call_us)
    at = (
        f"{amount(now.gb_s)} of the {amount(now.ceiling_gb_s)} GB/s of a copy"
        if memory_bound(evidence)
        else f"{amount(now.gflop_s)} of {amount(now.ceiling_gflop_s)} GFLOP/s"
    )
    runs = op.calls / evidence.profile.calls
    often = f", run {runs:.0f}x," if runs >= 1.5 else ""
    share_of = f"{op.share:.0%} of {evidence.profile.call_us:.0f} µs a call"
    return finding(
        "one_operator",
        f"{short(op.name)}{often} takes {share_of}, which does {at}",
        min(roofline_headroom(evidence), gain(op.share, times)),
        f"{short(op.name)}: {change}",
    )

"""Why is a call as slow as it is? One class, at most two findings, the cause first. Pure.

The class is chosen from the evidence; which detectors run follows from it. Where the evidence is ambiguous a detector
says nothing: a wrong finding costs an agent a candidate, a missing one does not.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit import arithmetic_detectors, cpu_detectors, launch_detectors, memory_detectors
from kernelgate.tools.kit.evidence import Counter, Evidence
from kernelgate.tools.kit.findings import BoundClass, Finding, FindingKind
from kernelgate.tools.kit.kernel_names import plain_name
from kernelgate.tools.kit.readings import (
    cleaned,
    counted,
    dram_share,
    headroom,
    least_us,
    main_row,
    memory_bound,
    working,
)
from kernelgate.tools.kit.timing_report import NEAR_BOUND, bound_class, bound_us

Detector: TypeAlias = Callable[[Evidence], Finding | None]

CPU_NEAR: Final = 1.25
"""Within 25 % of its bound a call on the CPU is bound by it."""
LEAST_GAIN: Final = 1.1
"""A fault that costs less than a tenth is not worth a candidate."""
BUSY: Final = 0.6
"""A unit busy for so much of what it could sustain bounds a kernel; under it latency does (Nsight Compute's line)."""
AT_DRAM: Final = 0.8
"""Of what a copy reaches: a copy itself is at 0.92 to 1."""
WAITING: Final = 0.85
"""Mean over the busiest multiprocessor's time below which the others wait."""

CPU_DETECTORS: Final[tuple[Detector, ...]] = (
    cpu_detectors.host_time,
    cpu_detectors.overhead,
    cpu_detectors.precision,
    cpu_detectors.copies,
    cpu_detectors.many_passes,
    cpu_detectors.beside_products,
    cpu_detectors.one_operator,
)
"""Causes before what they cause: the first that finds something explains the others."""
HOST_SIDE: Final[tuple[Detector, ...]] = (
    launch_detectors.sync,
    launch_detectors.many_launches,
    launch_detectors.host_time,
)
"""What keeps work from the device, whatever the device does; looked for near the bound too."""
_SPREAD: Final[tuple[Detector, ...]] = (
    launch_detectors.too_few_blocks,
    launch_detectors.tail_wave,
    launch_detectors.imbalance,
)
_TRAFFIC: Final[tuple[Detector, ...]] = (
    memory_detectors.uncoalesced,
    memory_detectors.many_passes,
    memory_detectors.missed_fusion,
    arithmetic_detectors.precision,
)
_WAITING: Final[tuple[Detector, ...]] = (
    memory_detectors.bank_conflicts,
    arithmetic_detectors.atomics,
    launch_detectors.too_few_warps,
    memory_detectors.narrow_loads,
    arithmetic_detectors.tensor_cores_unused,
)
_EVERY: Final = (arithmetic_detectors.spills, *_SPREAD, *_TRAFFIC, *_WAITING)
DETECTORS: Final[Mapping[BoundClass, tuple[Detector, ...]]] = {
    "dram": (arithmetic_detectors.spills, *_TRAFFIC),
    "l2": (arithmetic_detectors.spills, *_TRAFFIC, memory_detectors.bank_conflicts, arithmetic_detectors.atomics),
    "compute": (
        arithmetic_detectors.precision,
        arithmetic_detectors.tensor_cores_unused,
        memory_detectors.missed_fusion,
        memory_detectors.bank_conflicts,
        memory_detectors.narrow_loads,
    ),
    "tensor_idle": (
        arithmetic_detectors.tensor_cores_unused,
        arithmetic_detectors.precision,
        memory_detectors.missed_fusion,
        launch_detectors.too_few_blocks,
    ),
    "latency": _EVERY,
    "spill": (arithmetic_detectors.spills, *_TRAFFIC),
    "tail": (*_SPREAD, arithmetic_detectors.atomics, *_TRAFFIC),
}
"""Of the device side, for each class that counters tell.

Without them all run. A fault that is a class of its own, see `CLASS_OF`, tells it."""
CLASS_OF: Final[Mapping[FindingKind, BoundClass]] = {
    "sync": "sync",
    "many_launches": "launch",
    "host_time": "host",
    "spills": "spill",
    "too_few_blocks": "latency",
    "too_few_warps": "latency",
    "atomics": "latency",
    "tail_wave": "tail",
    "imbalance": "tail",
    "tensor_cores_unused": "tensor_idle",
}
RANK: Final[Mapping[FindingKind, int]] = {
    "sync": 0, "many_launches": 1, "host_time": 2, "spills": 3, "too_few_blocks": 4, "tensor_cores_unused": 5,
    "precision": 6, "atomics": 7, "uncoalesced": 8, "bank_conflicts": 8, "imbalance": 9, "tail_wave": 9,
    "missed_fusion": 10, "many_passes": 10, "too_few_warps": 11, "narrow_loads": 12,
}  # fmt: skip
"""Causes before what they cause: a wait empties the queue, so the host looks slow; spills and strided access move more
bytes and make warps wait; atomics touch scattered sectors too. Of the same rank the larger headroom comes first."""
EXPLAINED_BY: Final[Mapping[FindingKind, frozenset[FindingKind]]] = {
    "sync": frozenset({"host_time"}),
    "many_launches": frozenset({"host_time", "missed_fusion", "too_few_blocks", "too_few_warps", "tail_wave"}),
    "spills": frozenset({"uncoalesced", "many_passes", "too_few_warps", "narrow_loads"}),
    "too_few_blocks": frozenset({"too_few_warps", "narrow_loads", "imbalance", "tail_wave", "atomics"}),
    "tensor_cores_unused": frozenset({"too_few_warps", "bank_conflicts", "narrow_loads"}),
    "precision": frozenset({"many_passes", "narrow_loads"}),
    "uncoalesced": frozenset({"many_passes", "too_few_warps", "narrow_loads", "bank_conflicts"}),
    "bank_conflicts": frozenset({"too_few_warps", "narrow_loads"}),
    "atomics": frozenset({"too_few_warps", "narrow_loads", "uncoalesced"}),
    "imbalance": frozenset({"tail_wave", "too_few_warps"}),
    "tail_wave": frozenset({"too_few_warps"}),
    "missed_fusion": frozenset({"many_passes", "narrow_loads"}),
    "many_passes": frozenset({"narrow_loads"}),
    "too_few_warps": frozenset({"narrow_loads"}),
}
"""Findings that are not told beside their cause."""
PIPES: Final[tuple[Counter, ...]] = ("issue", "tensor", "fma", "alu", "fp64", "xu")
CACHES: Final[tuple[Counter, ...]] = ("l2", "l1")


class Diagnosis(Frozen):
    """What bounds a call, and what to change."""

    bound_class: BoundClass = ""
    bound_us: float = 0.0
    """Least time at the measured ceilings; on a GPU no less than the shortest kernel. 0 if unknown."""
    headroom: float = Field(default=1.0, ge=1)
    """Time of a call over it."""
    findings: Annotated[tuple[Finding, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=2)


def diagnose(evidence: Evidence) -> Diagnosis:
    """The class of a call and at most two findings, the one to mend first in front; never raises."""
    clean = cleaned(evidence)
    return _of_cpu(_plainly_named(clean)) if clean.device is None else _of_gpu(clean)


def _plainly_named(evidence: Evidence) -> Evidence:
    rows = tuple(op.model_copy(update={"name": plain_name(op.name)}) for op in evidence.profile.operators)
    return evidence.model_copy(update={"profile": evidence.profile.model_copy(update={"operators": rows})})


def _of_cpu(evidence: Evidence) -> Diagnosis:
    profile = evidence.profile
    least = bound_us(evidence.workload, evidence.ceilings, profile.call_us)
    kind: BoundClass = bound_class(evidence.workload, evidence.ceilings, profile.call_us)
    times = cpu_detectors.roofline_headroom(evidence)
    found: list[Finding] = []
    if working(evidence) and profile.call_us > 0 and profile.calls > 0 and times > CPU_NEAR:
        found = [finding for finding in _found(CPU_DETECTORS, evidence) if _worth(finding)]
    return Diagnosis(bound_class=kind, bound_us=least, headroom=times, findings=tuple(found[:1]))


def _found(detectors: tuple[Detector, ...], evidence: Evidence) -> list[Finding]:
    return [finding for finding in (detect(evidence) for detect in detectors) if finding is not None]


def _of_gpu(evidence: Evidence) -> Diagnosis:
    if evidence.profile.call_us <= 0 or evidence.profile.calls < 1 or main_row(evidence) is None:
        return Diagnosis(bound_us=least_us(evidence))
    found = _found(HOST_SIDE, evidence)
    kind = _device_class(evidence)
    if headroom(evidence) > NEAR_BOUND:
        found += _found(_EVERY if evidence.counters is None else DETECTORS[kind], evidence)
    told = _unexplained(_ranked([finding for finding in found if _worth(finding)]))[:2]
    if told and told[0].kind in CLASS_OF:
        kind = CLASS_OF[told[0].kind]
    return Diagnosis(bound_class=kind, bound_us=least_us(evidence), headroom=headroom(evidence), findings=tuple(told))


def _ranked(found: list[Finding]) -> list[Finding]:
    return sorted(found, key=lambda finding: (RANK.get(finding.kind, len(RANK)), -finding.headroom))


def _unexplained(ranked: list[Finding]) -> list[Finding]:
    """Without what stands behind its cause."""
    kept: list[Finding] = []
    for finding in ranked:
        if not any(finding.kind in EXPLAINED_BY.get(cause.kind, ()) for cause in kept):
            kept.append(finding)
    return kept


def _device_class(evidence: Evidence) -> BoundClass:
    """What bounds the device's part: by counters, or by the roofline alone where there are none."""
    by_roofline: BoundClass = "dram" if memory_bound(evidence) else "compute"
    if evidence.counters is None or headroom(evidence) <= NEAR_BOUND:
        return by_roofline
    if _worth(arithmetic_detectors.spills(evidence)):
        return "spill"
    active, busy = counted(evidence, "active"), counted(evidence, "busy")
    if active is not None and busy and active / busy < WAITING:
        return "tail"
    if _worth(arithmetic_detectors.tensor_cores_unused(evidence)):
        return "tensor_idle"
    if (dram_share(evidence) or 0.0) >= AT_DRAM:
        return "dram"
    return _busiest(evidence)


def _busiest(evidence: Evidence) -> BoundClass:
    """Caches or pipes, whichever are busier; latency if neither are."""
    caches = max(counted(evidence, name) or 0.0 for name in CACHES)
    pipes = max(counted(evidence, name) or 0.0 for name in PIPES)
    if max(caches, pipes) < BUSY:
        return "latency"
    return "l2" if caches > pipes else "compute"


def _worth(finding: Finding | None) -> bool:
    return finding is not None and finding.headroom >= LEAST_GAIN


def advice(diagnosis: Diagnosis) -> str:
    """One line: the first finding, or why there is none."""
    if diagnosis.findings:
        return diagnosis.findings[0].evidence
    if diagnosis.bound_class and diagnosis.headroom <= NEAR_BOUND:
        return "it runs within 5 % of its bound: stop, there is nothing left to gain"
    if diagnosis.headroom <= CPU_NEAR:
        return "no bottleneck stands out: it runs close to its bound"
    return (
        f"no single fault stands out: a call takes {diagnosis.headroom:.1f}x its bound of {diagnosis.bound_us:.0f} µs"
    )

"""`profile`: why is the candidate as fast as it is? One class, at most two findings, each with its number."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from kernelgate.budget.model import CandidateId, Rung, Verdict, as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit import failures, waits
from kernelgate.tools.kit.arguments import WaitSeconds
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.diagnosis import advice, diagnose
from kernelgate.tools.kit.evidence import (
    Counted,
    Counter,
    Evidence,
    Inspected,
    Inspection,
    Operator,
    OperatorProfile,
)
from kernelgate.tools.kit.facts import Ceilings, Fault, Kernel, WorkloadFacts
from kernelgate.tools.kit.findings import BoundClass, Finding
from kernelgate.tools.kit.kernel_names import plain_name
from kernelgate.tools.kit.readings import cleaned
from kernelgate.tools.kit.spec import MeasuringTool, RungReport
from kernelgate.tools.kit.timing_report import Reached, reached
from kernelgate.tools.kit.wire import ChildExit

LIMIT_S: Final = 60.0
NSIGHT_S: Final = 25.0
"""Nsight Compute replays each kernel of a call about twenty times: 8 to 12 s on an H200."""
FULL_HOLD_S: Final = NSIGHT_S + 5.0
"""Held for a profile of full depth, whose cost is not learned from that of the others. Less than the limit of ncu and
what comes before it would have a hanging one cut by the hold, begun again and paid twice."""
CALLS: Final = 20
SHOWN_OPERATORS: Final = 8
SHOWN_KERNELS: Final = 3
"""Of those that Nsight Compute saw; the report file has them all."""

IDLE: Final = "a call gives the device no work: there is nothing to profile"

Depth: TypeAlias = Literal["counters", "full"]


class ProfileArgs(Frozen):
    """A profile of a timed candidate."""

    candidate_id: CandidateId
    """From `compile`; must have passed quick_time."""
    depth: Depth = "counters"
    """`counters`: timeline, and the device's counters where the host lets them be read; about a device second. `full`:
    Nsight Compute besides, on one call, with stall reasons and the lines where warps wait; about ten."""
    fresh: bool = False
    """Profile again (charged) instead of answering from the book."""
    wait_s: WaitSeconds = 40.0


class ProfilePlan(Frozen):
    """How much to profile."""

    calls: int = CALLS
    depth: Depth = "counters"
    own_kernels: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Names of the kernels that the candidate's source defines."""
    kernels: Annotated[tuple[Kernel, ...], BeforeValidator(as_tuple)] = ()
    """As `compile` read them from their binaries."""


class ProfileFacts(Frozen):
    """What the profile of the largest public workload showed."""

    workload: WorkloadFacts | None = None
    profile: OperatorProfile | None = None
    ceilings: Ceilings | None = None
    fault: Fault | None = None
    on_gpu: bool = False
    """The operators are kernels."""
    counted: Counted = Counted()
    inspection: Inspection = Inspection()


class ProfileReport(RungReport):
    """A class and at most two findings; the table is for those who ask."""

    workload: str = ""
    bound_class: BoundClass = ""
    """What bounds a call. On the CPU, and where nothing more is known: which ceiling the task's bytes and operations
    meet first."""
    call_us: float | None = None
    bound_us: float | None = None
    """Least time at the measured ceilings."""
    headroom: float | None = None
    """call_us / bound_us."""
    reached: Reached | None = None
    """Bandwidth and rate of operations against the ceilings that the bound is made of."""
    own_kernel_share: float | None = None
    """Of the device time of the kernels seen: what kernels of the candidate's own source took. None on the CPU."""
    findings: Annotated[tuple[Finding, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=2)
    operators: Annotated[tuple[Operator, ...], BeforeValidator(as_tuple)] = ()
    """Largest share first."""
    launches: float = 0.0
    """Kernels, copies and fills of a call; 0 on the CPU."""
    gaps_us: float | None = None
    """Of a call, calls back to back: the time in which the device ran nothing. None on the CPU, and where not seen."""
    counters: dict[Counter, float] = Field(default_factory=dict["Counter", float])
    """What the device counted while calls ran back to back; see `Counter`. Empty where it could not be read."""
    kernels: Annotated[tuple[Inspected, ...], BeforeValidator(as_tuple)] = ()
    """What Nsight Compute saw, at full depth: the longest launches of one call."""
    missing: str = ""
    """What this profile had to do without, and what would add it."""
    log: str = ""

    @model_validator(mode="after")
    def _diagnosed_means_a_finding(self) -> "ProfileReport":
        if (self.verdict is Verdict.diagnosed) != bool(self.findings):
            raise ValueError("diagnosed comes with findings, and only it")
        return self


def measure(bench: Bench, plan: ProfilePlan) -> ProfileFacts:
    """Profile the largest public workload."""
    fault = bench.load()
    if fault is not None:
        return ProfileFacts(fault=fault)
    largest = bench.workloads(held_out=False)[-1]
    bench.progress("profiling", 0, 1)
    profile = bench.profile(largest.name, plan.calls, counters=True)
    if isinstance(profile, Fault):
        return ProfileFacts(workload=largest, fault=profile)
    counted = bench.counted(largest.name)
    inspection: Inspection | Fault = Inspection()
    if plan.depth == "full":
        bench.progress("Nsight Compute", 0, 1)
        inspection = bench.inspect(NSIGHT_S)
    if isinstance(inspection, Fault):
        return ProfileFacts(workload=largest, fault=inspection)
    return ProfileFacts(
        workload=largest, profile=profile, ceilings=bench.ceilings(), on_gpu=bench.device.kind == "cuda",
        counted=counted, inspection=inspection,
    )  # fmt: skip


def judge(facts: ProfileFacts | None, exit_: ChildExit, plan: ProfilePlan) -> ProfileReport:
    """Roofline class and findings."""
    if facts is not None and facts.fault is not None:
        failure = failures.of_fault(facts.fault, exit_, LIMIT_S)
        return ProfileReport(verdict=failure.verdict, code=failure.code, summary=failure.summary, log=facts.fault.log)
    ended = failures.of_exit(exit_, LIMIT_S)
    if ended is not None:
        return ProfileReport(verdict=ended.verdict, code=ended.code, summary=ended.summary)
    if facts is None or facts.workload is None or facts.profile is None or facts.ceilings is None:
        return ProfileReport(verdict=Verdict.crashed, code="CRASH", summary="it ended before the profile did")
    if facts.profile.note:
        return ProfileReport(verdict=Verdict.not_permitted, summary=facts.profile.note)
    counters = facts.counted.counters
    seen = cleaned(facts.profile).operators
    rows = tuple(op.model_copy(update={"name": plain_name(op.name)}) for op in seen)
    diagnosis = diagnose(
        Evidence(
            workload=facts.workload,
            profile=facts.profile,
            ceilings=facts.ceilings,
            device=facts.counted.device,
            counters=counters,
            inspected=facts.inspection.kernels,
            kernels=plan.kernels,
            tensor_cores_serve=facts.counted.tensor_cores_serve,
        )
    )
    waiting = waits.told(facts.inspection.kernels)
    return ProfileReport(
        verdict=Verdict.diagnosed if diagnosis.findings else Verdict.no_finding,
        summary=IDLE if facts.on_gpu and not rows else "; ".join(filter(None, (advice(diagnosis), waiting))),
        workload=facts.workload.name,
        bound_class=diagnosis.bound_class,
        call_us=facts.profile.call_us,
        bound_us=diagnosis.bound_us,
        headroom=diagnosis.headroom if diagnosis.bound_us > 0 else None,
        reached=_rounded(reached(facts.workload, facts.ceilings, facts.profile.call_us)),
        own_kernel_share=own_share(rows, plan.own_kernels) if facts.on_gpu else None,
        findings=diagnosis.findings,
        operators=rows[:SHOWN_OPERATORS],
        launches=sum(row.calls for row in rows) / max(1, facts.profile.calls) if facts.on_gpu else 0.0,
        gaps_us=gaps_us(facts.profile) if facts.on_gpu else None,
        counters={} if counters is None else {name: round(value, 4) for name, value in counters.values.items()},
        kernels=cleaned(facts.inspection).kernels[:SHOWN_KERNELS],
        missing="; ".join(filter(None, (facts.counted.missing, facts.inspection.note))),
    )


def _rounded(rates: Reached) -> Reached:
    """Four digits: more say nothing, and are read."""
    return Reached(**{name: float(f"{value:.4g}") for name, value in rates})


def gaps_us(profile: OperatorProfile) -> float | None:
    """What kernels, copies and fills leave of a call's wall clock; None where one of the two is not known."""
    if profile.span_us <= 0 or profile.busy_us <= 0:
        return None
    return round(max(0.0, profile.span_us - profile.busy_us), 2)


def own_share(kernels: Sequence[Operator], own: Sequence[str]) -> float:
    """Share of the time of some kernels that was in those of these names."""
    total_us = sum(kernel.self_us for kernel in kernels)
    return sum(kernel.self_us for kernel in kernels if kernel.name in own) / total_us if total_us > 0 else 0.0


TOOL: Final = MeasuringTool(
    name="profile",
    title="Profile",
    description=(
        "Why is a candidate as fast as it is? Runs it under a profiler on the largest workload and returns the "
        "bottleneck's class, the headroom, and at most two findings, each with its evidence and one concrete change to "
        "try next; and what moved since the parent's profile. Needs a passed quick_time; has its own small purse. "
        "Costs about a device second, with depth=full (Nsight Compute) about ten. Use it on your best candidate "
        "before writing the next one."
    ),
    rung=Rung.profile,
    args=ProfileArgs,
    plan=ProfilePlan,
    facts=ProfileFacts,
    report=ProfileReport,
    measure=measure,
    judge=judge,
    score=lambda report: None,
    limit_s=LIMIT_S,
    first_hold_s=3.0,
)

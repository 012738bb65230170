"""`profile`: why is the candidate as fast as it is? One class, at most two findings, each with its number."""

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from kernelgate.budget.model import CandidateId, Rung, Verdict, as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit import failures
from kernelgate.tools.kit.arguments import WaitSeconds
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.evidence import Operator, OperatorProfile
from kernelgate.tools.kit.facts import Ceilings, Fault, WorkloadFacts
from kernelgate.tools.kit.spec import MeasuringTool, RungReport
from kernelgate.tools.kit.timing_report import bound_class, bound_us
from kernelgate.tools.kit.wire import ChildExit

LIMIT_S: Final = 30.0
CALLS: Final = 20
SHOWN_OPERATORS: Final = 8
MAX_NAME_CHARS: Final = 80
NEAR: Final = 1.25
"""Within 25 % of a bound the candidate is bound by it."""
SMALL_OPERATOR_US: Final = 5.0
"""An operator call shorter than this is mostly dispatch."""
DOMINANT_SHARE: Final = 0.4

BottleneckClass = Literal["memory", "compute", "overhead", "many_passes", "one_operator"]


class ProfileArgs(Frozen):
    """A profile of a timed candidate."""

    candidate_id: CandidateId
    """From `compile`; must have passed quick_time."""
    fresh: bool = False
    """Profile again (charged) instead of answering from the book."""
    wait_s: WaitSeconds = 40.0


class ProfilePlan(Frozen):
    """How much to profile."""

    calls: int = CALLS
    own_kernels: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Names of the kernels that the candidate's source defines."""


class ProfileFacts(Frozen):
    """What the profile of the largest public workload showed."""

    workload: WorkloadFacts | None = None
    profile: OperatorProfile | None = None
    ceilings: Ceilings | None = None
    fault: Fault | None = None
    on_gpu: bool = False
    """The operators are kernels."""


class Finding(Frozen):
    """One bottleneck."""

    kind: BottleneckClass
    evidence: str
    headroom: float = Field(ge=1)
    """Times faster it could become if this were solved: an estimate from the roofline or the operator's share."""
    change: str
    """One concrete thing to try."""


class ProfileReport(RungReport):
    """A class and at most two findings; the table is for those who ask."""

    workload: str = ""
    bound_class: Literal["", "memory", "compute"] = ""
    """Which ceiling the task's bytes and operations meet first."""
    call_us: float | None = None
    bound_us: float | None = None
    """Least time at the measured ceilings."""
    headroom: float | None = None
    """call_us / bound_us."""
    own_kernel_share: float | None = None
    """Of the device time of the kernels seen: what kernels of the candidate's own source took. None on the CPU."""
    findings: Annotated[tuple[Finding, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=2)
    operators: Annotated[tuple[Operator, ...], BeforeValidator(as_tuple)] = ()
    """Largest share first."""
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
    profile = bench.profile(largest.name, plan.calls, counters=False)
    if isinstance(profile, Fault):
        return ProfileFacts(workload=largest, fault=profile)
    on_gpu = bench.device.kind == "cuda"
    return ProfileFacts(workload=largest, profile=profile, ceilings=bench.ceilings(), on_gpu=on_gpu)


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
    least = bound_us(facts.workload, facts.ceilings, facts.profile.call_us)
    kind = bound_class(facts.workload, facts.ceilings, facts.profile.call_us)
    rows = tuple(op.model_copy(update={"name": plain_name(op.name)}) for op in facts.profile.operators)
    findings = diagnose(facts.profile.model_copy(update={"operators": rows}), least, kind)
    headroom = max(1.0, facts.profile.call_us / least) if least > 0 else None
    summary = findings[0].evidence if findings else "no bottleneck stands out: it runs close to its bound"
    return ProfileReport(
        verdict=Verdict.diagnosed if findings else Verdict.no_finding,
        summary=summary,
        workload=facts.workload.name,
        bound_class=kind,
        call_us=facts.profile.call_us,
        bound_us=least,
        headroom=headroom,
        own_kernel_share=own_share(rows, plan.own_kernels) if facts.on_gpu else None,
        findings=findings,
        operators=rows[:SHOWN_OPERATORS],
    )


def own_share(kernels: Sequence[Operator], own: Sequence[str]) -> float:
    """Share of the time of some kernels that was in those of these names."""
    total_us = sum(kernel.self_us for kernel in kernels)
    return sum(kernel.self_us for kernel in kernels if kernel.name in own) / total_us if total_us > 0 else 0.0


def plain_name(name: str) -> str:
    """An operator's or kernel's name without its C++ signature: `vectorized_elementwise_kernel (exp_kernel_cuda)`."""
    # A name in an unnamed namespace has parentheses of its own, in front of it.
    signature = re.match(r"(?:void )?([\w:]*\w)[<(](.*)", name.replace("(anonymous namespace)::", ""), re.DOTALL)
    if signature is None:
        return name[:MAX_NAME_CHARS]
    own = signature[1].rpartition("::")[2]
    # What a generic kernel computes stands in its arguments, as a function, a functor or the name of a shape.
    meant = re.search(r"(\w+_kernel_cuda|\w+Functor|cutlass_\w+)\b", signature[2])
    return (own if meant is None else f"{own} ({meant[1]})")[:MAX_NAME_CHARS]


def diagnose(profile: OperatorProfile, least_us: float, bound: Literal["memory", "compute"]) -> tuple[Finding, ...]:
    """At most two findings, the one with the larger headroom first. `least_us`: the roofline bound of a call."""
    working = [op for op in profile.operators if op.self_us > 0]
    if not working or profile.call_us <= 0:
        return ()
    headroom = max(1.0, profile.call_us / least_us) if least_us > 0 else 1.0
    if headroom <= NEAR:
        return ()
    found = [
        finding for finding in (_overhead(profile, working), _passes(profile, working, headroom, bound)) if finding
    ]
    largest = max(working, key=lambda op: op.share)
    if largest.share >= DOMINANT_SHARE:
        gain = 1 / max(1e-6, 1 - largest.share * (1 - 1 / headroom))
        found.append(
            Finding(
                kind="one_operator",
                evidence=f"{largest.name} takes {largest.share:.0%} of {profile.call_us:.0f} µs a call",
                headroom=max(1.0, gain),
                change=f"replace or restructure {largest.name}: "
                + (
                    "fewer or smaller copies"
                    if "copy" in largest.name or "clone" in largest.name
                    else "use a fused or in-place form, a better layout or fewer elements"
                ),
            )
        )
    return tuple(sorted(found, key=lambda finding: -finding.headroom)[:2])


def _overhead(profile: OperatorProfile, working: list[Operator]) -> Finding | None:
    calls = sum(op.calls for op in working) / profile.calls
    each_us = sum(op.self_us for op in working) / profile.calls / max(calls, 1e-9)
    if each_us >= SMALL_OPERATOR_US or calls < 3:
        return None
    return Finding(
        kind="overhead",
        evidence=f"{calls:.0f} operator calls of {each_us:.1f} µs each: dispatch costs more than arithmetic",
        headroom=max(1.0, calls / 2),
        change="fuse: fewer, larger operators, or one kernel for the whole of forward",
    )


def _passes(
    profile: OperatorProfile, working: list[Operator], headroom: float, bound: Literal["memory", "compute"]
) -> Finding | None:
    large = [op for op in working if op.self_us / profile.calls >= 0.05 * profile.call_us]
    passes = sum(op.calls for op in large) / profile.calls
    if bound != "memory" or passes < 2.5:
        return None
    names = ", ".join(list(dict.fromkeys(op.name for op in large))[:4])
    return Finding(
        kind="many_passes",
        evidence=f"about {passes:.0f} passes over memory a call ({names}), where one is needed",
        headroom=headroom,
        change="fuse the passes: compute row by row while the data is in cache, write each result once",
    )


TOOL: Final = MeasuringTool(
    name="profile",
    title="Profile",
    description=(
        "Why is a candidate as fast as it is? Runs it under a profiler on the largest workload and returns the "
        "roofline class, the headroom, and at most two bottlenecks, each with its evidence and one concrete change to "
        "try next. Needs a passed quick_time; has its own small purse. Costs about a device second. Use it on your "
        "best candidate before writing the next one."
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

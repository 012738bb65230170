"""`compile`: does the candidate build? Traced on fake tensors of the real shapes, without a device and free of it."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from kernelgate.budget.model import CandidateId, Code, Rung, RunId, Verdict, as_tuple
from kernelgate.tasks.model import ENTRY_FILE, Candidate, Frozen
from kernelgate.tasks.source_scan import Language, scan_files
from kernelgate.tools.kit.allowed import told_of_library_calls, why_forbidden
from kernelgate.tools.kit.arguments import OverrideReason, WaitSeconds
from kernelgate.tools.kit.bench import Builder
from kernelgate.tools.kit.build_log import trimmed_log, wants_device
from kernelgate.tools.kit.facts import Fault, Kernel, Trace
from kernelgate.tools.kit.failures import with_remedy
from kernelgate.tools.kit.house import DeviceBuildFacts
from kernelgate.tools.kit.kernels import MAX_KERNELS_SHOWN, KernelReport, kernel_reports
from kernelgate.tools.kit.spec import MeasuringTool, RungReport
from kernelgate.tools.kit.wire import ChildExit

LIMIT_S: Final = 60.0
EXTENSION_LIMIT_S: Final = 300.0
"""For inline C++ and CUDA: one architecture took 28 s on an H200 host, with a cold compiler cache and headers 59 s."""
SHOWN_LIBRARY_CALLS: Final = 20
LIBRARY: Final[Code] = "REFERENCE_CALL"
UpTo = Literal["compile", "check_correctness", "quick_time", "precise_time"]


class CompileArgs(Frozen):
    """A new candidate; give either `source` or `files`."""

    run_id: RunId
    source: str | None = None
    """Python text that defines `ModelNew`: the constructor and `forward` of the task's `Model`."""
    files: dict[str, str] | None = None
    """Several files instead: name to text; one is `candidate.py`."""
    parent_id: CandidateId | None = None
    """The candidate of this run that it was made from."""
    note: Annotated[str, Field(max_length=2000)] = ""
    """Your hypothesis: what should make it faster."""
    up_to: UpTo = "compile"
    """Climb on to this rung; stops at the first that refuses or fails. Then `rung`, `verdict` and `summary` are of the
    last rung tried, `last_report` is its report, `report` is compile's."""
    override_reason: OverrideReason | None = None
    """With `up_to`: promote against the rule, out of the small exploration purse."""
    wait_s: WaitSeconds = 40.0

    @model_validator(mode="after")
    def _one_candidate(self) -> "CompileArgs":
        if (self.source is None) == (self.files is None):
            given = "both" if self.source is not None else "neither"
            raise ValueError(f"give either source (one Python text) or files (name to text); got {given}")
        try:
            self.candidate()
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        return self

    def candidate(self) -> Candidate:
        """The candidate that the arguments describe."""
        return Candidate(files=self.files if self.files is not None else {ENTRY_FILE: self.source or ""})


class CompilePlan(Frozen):
    """Nothing to choose: all public workloads are traced."""


class CompileFacts(Frozen):
    """What happened, in order, up to the first failure."""

    language: Language = "torch"
    forbidden: str = ""
    """Why the task does not take it; empty if it does."""
    code: Code | None = None
    """Class of what is forbidden."""
    fault: Fault | None = None
    """Met in load or trace."""
    trace: Trace | None = None
    kernels: Annotated[tuple[Kernel, ...], BeforeValidator(as_tuple)] = ()
    notes: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    missing: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Programs that inline C++ and CUDA need and this host lacks."""
    extensions: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Of C++ and CUDA, that were built when the candidate was imported and its model constructed."""
    wants_device: bool = False
    """The fault is that it looked for a GPU when it was imported, where there is none."""
    unseen: bool = False
    """The task takes no operators of torch, and it was not seen to the end what forward computes with."""


class CompileReport(RungReport):
    """Whether it builds, and what it would take of the device."""

    log: str = ""
    """End of the error output of a build that failed."""
    traced: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Workloads whose forward went through on fake tensors."""
    kernels: Annotated[tuple[KernelReport, ...], BeforeValidator(as_tuple)] = ()
    """Kernels of the binaries; of an autotuned one, each configuration."""
    kernels_total: int = 0
    own_launches: int = 0
    """Kernels of its own that the traced forwards launched."""
    library_calls: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Operators of torch that forward computes with, the most called first; not memory, views or copies."""
    precisions: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Floating-point types that they compute in."""
    missing: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Programs that C++ and CUDA sources need and this host lacks."""
    notes: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()

    @model_validator(mode="after")
    def _numbers_only_of_what_was_built(self) -> "CompileReport":
        known = self.verdict in (Verdict.built, Verdict.needs_device)
        if not known and (self.kernels or self.kernels_total):
            raise ValueError("kernels are reported of what was compiled only")
        if self.verdict is Verdict.built and self.log:
            raise ValueError("a built candidate has no error log")
        return self


def measure(builder: Builder, plan: CompilePlan) -> CompileFacts:
    """Scan, load, trace, read the binaries; stops at the first failure."""
    scan = scan_files(builder.files)
    facts = CompileFacts(language=scan.language, forbidden=why_forbidden(scan, builder.task, builder.files))
    if facts.forbidden:
        return facts
    if scan.language == "cuda":
        missing = builder.missing_programs() if builder.device.kind == "cuda" else ()
        if missing or builder.device.kind == "cpu":
            return facts.model_copy(update={"missing": missing})
    fault = builder.load()
    if fault is not None:
        # On the CPU a torch candidate meets no GPU later either: there it is an error like any other.
        may_wait = builder.device.kind == "cuda" or scan.language != "torch"
        return facts.model_copy(update={"fault": fault, "wants_device": may_wait and wants_device(fault)})
    # What C++ and CUDA sources do cannot be followed on fake tensors; constructors build them.
    trace = builder.construct() if scan.language == "cuda" else builder.trace()
    if scan.language == "cuda":
        unseen = not builder.task.allow_library_calls
        facts = facts.model_copy(update={"extensions": builder.extensions(), "unseen": unseen})
    if isinstance(trace, Fault):
        return facts.model_copy(update={"fault": trace})
    if scan.language == "cuda":
        kernels = builder.kernels()
        return facts.model_copy(update={"trace": trace, "kernels": kernels, "notes": builder.notes()})
    if trace.launches and "triton" not in builder.task.languages:
        return facts.model_copy(update={"forbidden": "it launches Triton kernels, which this task does not take"})
    if trace.operators and not builder.task.allow_library_calls:
        return facts.model_copy(update={"forbidden": told_of_library_calls(trace.operators), "code": LIBRARY})
    # Triton cannot be run on a CPU: there the trace is all that there is to see.
    runs_here = builder.device.kind == "cuda" or not trace.launches
    unseen = not builder.task.allow_library_calls and (runs_here or not trace.complete)
    kernels = builder.kernels()
    return facts.model_copy(update={"trace": trace, "unseen": unseen, "kernels": kernels, "notes": builder.notes()})


def judge(facts: CompileFacts | None, exit_: ChildExit, plan: CompilePlan) -> CompileReport:
    """The verdict, from the facts and from how the candidate's process ended."""
    if exit_.kind == "cap_reached":
        return CompileReport(
            verdict=Verdict.build_timed_out,
            code="HANG",
            summary=_too_slow(facts),
        )
    if facts is None:
        return _failed("CRASH", "its process ended before the build did" + _ended(exit_))
    if facts.forbidden:
        return CompileReport(verdict=Verdict.forbidden, code=facts.code, summary=facts.forbidden)
    if facts.fault is not None:
        return _met(facts, facts.fault, exit_)
    if facts.language == "cuda":
        return _of_extensions(facts)
    trace = facts.trace
    if trace is None:
        return _failed("CRASH", "its process ended before forward did" + _ended(exit_))
    if not trace.complete and (facts.language == "triton" or trace.launches):
        return _needs_device(trace)
    built = _built(facts, trace)
    if not facts.unseen:
        return built
    why = "it builds, but a trace does not see what goes past torch's dispatcher"
    if not trace.complete:
        why = f"forward could not be followed to its end without real values ({trace.error})"
    return _must_be_seen(built, why)


def _must_be_seen(built: CompileReport, why: str) -> CompileReport:
    """Of a task that takes no operators of torch: not built before it was run under somebody's eyes."""
    said = f"{why}, and this task takes kernels of your own alone: it must be run once to see what it computes with"
    return built.model_copy(update={"verdict": Verdict.needs_device, "code": LIBRARY, "summary": said})


def _of_extensions(facts: CompileFacts) -> CompileReport:
    if facts.trace is not None:
        built = _with_extensions(facts, facts.trace)
        return (
            _must_be_seen(built, "what C++ and CUDA sources compute with cannot be traced") if facts.unseen else built
        )
    if facts.missing:
        lacking = " and ".join(facts.missing)
        said = (
            f"inline C++ and CUDA need {lacking}, which this host lacks: install them; Triton candidates work without"
        )
        return CompileReport(verdict=Verdict.needs_device, summary=said, missing=facts.missing)
    return CompileReport(
        verdict=Verdict.needs_device,
        summary="inline C++ and CUDA sources are built on a GPU host only: write it in Triton, or run there",
    )


def _with_extensions(facts: CompileFacts, trace: Trace) -> CompileReport:
    notes = list(facts.notes)
    if not trace.complete:
        notes.append(f"its model could not be constructed without a GPU ({trace.error}); the check will")
    said = "it builds, its C++ and CUDA sources with it"
    if not facts.extensions:
        said = "it can be imported, but no C++ or CUDA source was built yet"
        notes.append(
            f"what forward builds first takes the device's time and ends with its call: build it in __init__, without "
            f"a build_directory, where it has {EXTENSION_LIMIT_S:g} s and is kept for the later rungs"
        )
    reports = kernel_reports(facts.kernels, notes)
    return CompileReport(
        verdict=Verdict.built,
        summary=f"{said}; next: check_correctness",
        kernels=tuple(reports[:MAX_KERNELS_SHOWN]),
        kernels_total=len(reports),
        notes=tuple(notes),
    )


def _too_slow(facts: CompileFacts | None) -> str:
    """Of a build that was ended, what it may take and what to do."""
    if facts is not None and facts.language == "cuda":
        return (
            f"its C++ and CUDA sources did not build within their limit of {EXTENSION_LIMIT_S:g} s: include fewer "
            "headers, instantiate fewer templates, drop further -gencode flags"
        )
    of_sources = f" ({EXTENSION_LIMIT_S:g} s with C++ or CUDA sources)" if facts is None else ""
    said = f"it did not build within its limit of {LIMIT_S:g} s{of_sources}"
    return f"{said}: use fewer autotune configurations, unroll or include less"


def built_on_device(
    report: CompileReport, facts: DeviceBuildFacts | None, exit_: ChildExit, *, library_calls: bool = True
) -> CompileReport:
    """The verdict on a candidate that could not be traced, after a child on the device had run it.

    `library_calls`: whether the task takes operators of torch.
    """
    if exit_.kind == "cap_reached":
        return CompileReport(
            verdict=Verdict.build_timed_out, code="HANG", summary="its first calls on the device did not end in time"
        )
    if facts is None:
        return _failed("CRASH", "its process ended on the device before the build did" + _ended(exit_))
    if facts.fault is not None:
        return _of_fault(facts.fault, exit_)
    if facts.watched.operators and not library_calls:
        said = told_of_library_calls(facts.watched.operators)
        return CompileReport(verdict=Verdict.forbidden, code=LIBRARY, summary=said)
    return report.model_copy(
        update={
            "verdict": Verdict.built,
            "code": None,
            "summary": f"it builds, and was run once on the device ({facts.prepare_s:.1f} s, on the house); next: "
            "check_correctness",
            "traced": facts.workloads,
            "library_calls": facts.watched.operators[:SHOWN_LIBRARY_CALLS],
            "precisions": facts.watched.precisions,
            "notes": (*report.notes, report.summary),
        }
    )


def _met(facts: CompileFacts, fault: Fault, exit_: ChildExit) -> CompileReport:
    """What a fault says where there is no GPU, which may be its reason."""
    if facts.wants_device:
        said = f"it looks for a GPU when it is imported, so that it is built on one only: {fault.error}"
        return CompileReport(verdict=Verdict.needs_device, summary=said)
    if _died_for_want_of_a_device(fault, facts.language, exit_):
        error = f"its process ended in its constructor{_ended(exit_)}"
        trace = Trace(on="fake_cuda", workloads=(), complete=False, error=error)
        return _of_extensions(facts.model_copy(update={"fault": None, "trace": trace}))
    return _of_fault(fault, exit_)


def _died_for_want_of_a_device(fault: Fault, language: Language, exit_: ChildExit) -> bool:
    """Whether native code may have gone on behind an error of CUDA's, as it need not look for one on a GPU."""
    return language == "cuda" and (fault.kind, fault.stage, exit_.kind) == ("gone", "construct", "signalled")


def _of_fault(fault: Fault, exit_: ChildExit) -> CompileReport:
    where = {"load": "when imported", "construct": "when constructed"}.get(fault.stage, "in a trial forward")
    log = trimmed_log(fault.log)
    if fault.kind == "out_of_memory":
        return _failed("OOM", f"it ran out of memory {where}: {fault.error}", log)
    if fault.kind == "gone":
        return _failed("CRASH", f"its process ended {where}{_ended(exit_)}", log)
    if fault.kind == "broken_protocol":
        return _failed("FAKE_REPORT", f"it wrote on the private channel of its process: {fault.error}", log)
    return _failed(None, with_remedy(f"it failed {where}: {fault.error}"), log)


def _failed(code: Code | None, summary: str, log: str = "") -> CompileReport:
    return CompileReport(verdict=Verdict.build_failed, code=code, summary=summary, log=log)


def _ended(exit_: ChildExit) -> str:
    if exit_.kind == "signalled":
        return f", by signal {exit_.status}"
    return f", with status {exit_.status}" if exit_.kind == "exited" else ""


def _needs_device(trace: Trace) -> CompileReport:
    if trace.needs_values:
        why = "it reads values of tensors on the host (.item(), a condition, a mask), which needs a GPU to build"
    else:
        why = "it does what cannot be traced without a GPU"
    return CompileReport(
        verdict=Verdict.needs_device,
        summary=f"{why}: {trace.error}",
        traced=trace.workloads[:-1],
    )


def _built(facts: CompileFacts, trace: Trace) -> CompileReport:
    notes = list(facts.notes)
    if not trace.complete:
        notes.append(f"forward could not be followed to its end without real values ({trace.error}); the check will")
    if trace.configurations_skipped:
        notes.append(
            f"{trace.configurations_skipped} autotune configurations were left out; they compile on the device"
        )
    if facts.language == "triton" and not trace.launches:
        notes.append("forward launched no Triton kernel")
    reports = kernel_reports(facts.kernels, notes)
    kernels = f", {len(reports)} kernels compiled for {facts.kernels[0].target}" if reports else ""
    return CompileReport(
        verdict=Verdict.built,
        summary=f"it builds{kernels}; next: check_correctness",
        traced=trace.workloads if trace.complete else trace.workloads[:-1],
        kernels=tuple(reports[:MAX_KERNELS_SHOWN]),
        kernels_total=len(reports),
        own_launches=trace.launches,
        library_calls=trace.operators[:SHOWN_LIBRARY_CALLS],
        precisions=trace.precisions,
        notes=tuple(notes),
    )


def _no_score(report: Any) -> None:
    return


TOOL: Final = MeasuringTool(
    name="compile",
    title="Compile a candidate",
    description=(
        "Register a candidate and see whether it builds; returns its candidate_id for the later tools. Uses no device "
        "time. Pass source (defines ModelNew) or files, the parent_id it came from, and your hypothesis as note. It is "
        "traced on the task's real shapes; Triton kernels are compiled for the run's GPU target, with registers, "
        "spills, shared memory, occupancy and advice. Same source, same id. up_to climbs several rungs in one call. "
        "Next: check_correctness."
    ),
    rung=Rung.compile,
    args=CompileArgs,
    plan=CompilePlan,
    facts=CompileFacts,
    report=CompileReport,
    measure=measure,
    judge=judge,
    score=_no_score,
    limit_s=LIMIT_S,
    first_hold_s=0.0,
)

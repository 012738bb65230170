"""From a fault or a wrong answer to a verdict: the same words on every rung. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kernelgate.budget.model import Code, Verdict
from kernelgate.tools.kit.facts import WHILE_BASELINE, Comparison, Fault
from kernelgate.tools.kit.wire import ChildExit

SIGKILL = 9
SHOWN_NAMES: Final = 5
LOOKS_LIKE: dict[str, tuple[Code, str]] = {
    "zeros": ("CONSTANT", "the answer is all zeros"),
    "constant": ("CONSTANT", "the answer is one constant"),
    "input": ("PASSTHROUGH", "the answer is the input"),
    "previous_output": ("OUTPUT_REPLAY", "the answer is that of an earlier call"),
    "low_precision": ("PRECISION_DOWNGRADE", "errors of the size that half precision makes: accumulate in float32"),
}
LIMITS: dict[str, tuple[Code, str]] = {
    "OSError: [Errno 27]": ("DISK", "the limit on the size of a file"),
    "OSError: [Errno 28]": ("DISK", "the limit on what it may write"),
    "BlockingIOError: [Errno 11]": ("FORK", "the limit on processes and threads"),
    "RuntimeError: can't start new thread": ("FORK", "the limit on processes and threads"),
}
"""How what a candidate raised begins where it met a wall that counts, with the class of who goes there on purpose."""
SIGXFSZ = 25
KEEPS: Final = "its answers depend on what it was asked before, or how often"
OTHER_ARCHITECTURE: Final = ("no kernel image is available", "device kernel image is invalid", "no binary for GPU")
"""How CUDA words that a binary has no code for the device."""
FOR_OTHERS: Final = (
    "it is built for another architecture than this GPU's: drop -gencode and -arch flags and TORCH_CUDA_ARCH_LIST of "
    "your own, and it is built for this one"
)
WEAKER: Final[tuple[Code | None, ...]] = (None, "NONFINITE", "CONSTANT", "PASSTHROUGH")
"""Codes that say less than that the same values had been answered rightly before."""


class Failure(NamedTuple):
    """A verdict against a candidate, with its class and one sentence."""

    verdict: Verdict
    code: Code | None
    summary: str


def of_exit(exit_: ChildExit, limit_s: float) -> Failure | None:
    """What the way the candidate's process ended says, or None if it ended as it should."""
    if exit_.kind == "cap_reached":
        return Failure(Verdict.timed_out, "HANG", f"it did not finish within {limit_s:g} s and was stopped")
    if exit_.kind == "signalled":
        if exit_.status == SIGKILL:
            return Failure(Verdict.out_of_memory, "OOM", "its process was killed by the kernel, most likely for memory")
        if exit_.status == SIGXFSZ:
            return Failure(Verdict.crashed, "DISK", "its process was ended at the limit on the size of a file")
        return Failure(Verdict.crashed, "CRASH", f"its process died of signal {exit_.status}")
    if exit_.kind == "exited":
        return Failure(Verdict.crashed, "CRASH", f"its process left with status {exit_.status} before it answered")
    return None


def of_fault(fault: Fault, exit_: ChildExit, limit_s: float) -> Failure:
    """What a candidate that did not answer as it should is told."""
    if fault.kind == "out_of_memory":
        return Failure(Verdict.out_of_memory, "OOM", f"it ran out of memory in {fault.stage}: {fault.error}")
    if fault.kind == "broken_protocol":
        return Failure(
            Verdict.suspicious, "FAKE_REPORT", f"it wrote on the private channel of its process: {fault.error}"
        )
    if fault.kind == "too_early":
        return Failure(Verdict.suspicious, "DEFERRED", fault.error)
    if fault.kind == "busy_device":
        return Failure(Verdict.suspicious, "BASELINE_POISON", fault.error)
    if fault.kind == "raised":
        return _of_raised(fault)
    ended = of_exit(exit_, limit_s)
    return ended or Failure(Verdict.crashed, "CRASH", f"its process was gone in {fault.stage}")


def with_remedy(said: str) -> str:
    """What a candidate that raised is told, with what to do where CUDA's own words do not tell."""
    known = any(text in said for text in OTHER_ARCHITECTURE)
    return f"{FOR_OTHERS} ({' '.join(said.split())})" if known else said


def _of_raised(fault: Fault) -> Failure:
    said = f"it raised in {fault.stage}: {fault.error}"
    for beginning, (code, met) in LIMITS.items():
        if fault.error.startswith(beginning):
            return Failure(Verdict.crashed, code, f"{said}; it met {met}")
    return Failure(Verdict.crashed, "CRASH", with_remedy(said))


def of_comparison(comparison: Comparison) -> Failure:
    """What a wrong answer is told; the comparison must have a problem."""
    failure = _of_problem(comparison)
    if not comparison.again or comparison.problem not in ("wrong_values", "nonfinite"):
        return failure
    code: Code | None = "PHASE_SNIFF" if failure.code in WEAKER else failure.code
    return failure._replace(code=code, summary=f"{failure.summary}; it was right on the same values before: {KEEPS}")


def _of_problem(comparison: Comparison) -> Failure:
    where = f"workload {comparison.workload}, distribution {comparison.distribution}"
    output = f" (output {comparison.output})" if comparison.output else ""
    if comparison.problem == "input_mutation" and comparison.pattern == WHILE_BASELINE:
        said = f"the inputs that both sides read were changed {WHILE_BASELINE}, on {where}"
        return Failure(Verdict.input_mutation, "BASELINE_POISON", said)
    if comparison.problem == "input_mutation":
        return Failure(Verdict.input_mutation, "INPUT_MUTATION", f"it changed its inputs on {where}: work on a copy")
    if comparison.problem in ("wrong_type", "wrong_shape", "wrong_dtype"):
        verdict = Verdict(comparison.problem)
        code: Code | None = "LAZY_OUTPUT" if verdict is Verdict.wrong_type else None
        return Failure(verdict, code, f"on {where}{output} it returned {comparison.got}, expected {comparison.want}")
    if comparison.problem == "nonfinite":
        said = f"on {where}{output} nan or inf stand where the reference has none, or are missing"
        if comparison.looks_like == "previous_output":
            code, hint = LOOKS_LIKE[comparison.looks_like]
            return Failure(Verdict.nonfinite, code, f"{said}; {hint}")
        if comparison.untouched_share > 0:
            unwritten = f"{comparison.untouched_share:.2%} of the answer on {where}{output} was never written"
            return Failure(Verdict.nonfinite, "STALE_MEMORY", unwritten)
        return Failure(Verdict.nonfinite, "NONFINITE", said)
    return _wrong_values(comparison, where + output)


def _wrong_values(comparison: Comparison, where: str) -> Failure:
    share = f"{comparison.wrong_share:.2%} of the elements are wrong on {where}"
    worst = f"worst absolute error {comparison.worst_abs:.3g}, relative {comparison.worst_rel:.3g}"
    code: Code | None = None
    hint = ""
    if comparison.looks_like:
        code, hint = LOOKS_LIKE[comparison.looks_like]
    elif comparison.untouched_share > 0:
        code, hint = "STALE_MEMORY", f"{comparison.untouched_share:.2%} of the answer was never written"
    elif comparison.pattern:
        hint = comparison.pattern
    differ = f"parameters differ from the reference's names: {_some(comparison.missing_weights)}"
    said = [share, worst, *([hint] if hint else []), *([differ] if comparison.missing_weights else [])]
    return Failure(Verdict.wrong_values, code, "; ".join(said))


def _some(names: Sequence[str]) -> str:
    """The first few of some names."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more

"""From an answer in lent memory, and what the candidate says of it, to a `Comparison`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from kernelgate.tasks.model import Bound, Distribution, Dtype, Task, Tolerance
from kernelgate.tools.kit.facts import Comparison
from kernelgate.tools.worker.compare import Finding, compare_values, dtype_kind
from kernelgate.tools.worker.patterns import LooksLike, is_near, looks_like
from kernelgate.tools.worker.pool import PoolEntry
from kernelgate.tools.worker.protocol import OutputClaim
from kernelgate.tools.worker.reference import HeldWorkload, TaskError
from kernelgate.tools.worker.structure import Unsupported, decode_scalar, dtype_name, leaves, mapped
from kernelgate.tools.worker.variants import CannotTell, exact_leaves

SAME_EVERYWHERE: Final[frozenset[Distribution]] = frozenset({"zeros", "ones"})
"""Under these an honest mistake gives a constant too."""

BY_CHANCE: Final = 0.05
"""Several times what a byte is like a secret one by chance."""


@dataclass(frozen=True)
class Question:
    """What an answer is judged against. All of it is private to the referee."""

    task: Task
    workload: str
    distribution: Distribution
    expected: Any
    given_before: Callable[[str, torch.Tensor], bool] | None = None
    """Whether an answer (path, tensor) is the one to another call. Only asked of a wrong one."""
    held: HeldWorkload | None = None
    """Whom to ask where the expected answer alone does not decide: the float64 run, the task's own check."""
    seed: int = 0
    missing: tuple[str, ...] = ()
    """Names of the reference's state that the candidate could not take."""

    def allowed(self, path: str, dtype: Dtype) -> Tolerance | Bound:
        """How far an output may be from the expected one."""
        return self.task.bound(self.workload, self.distribution, path) or self.task.tolerance(dtype)

    @property
    def by_property(self) -> bool:
        """Whether the task's own check judges the values."""
        return self.held is not None and self.held.has_check


def judge_answer(question: Question, entry: PoolEntry, claims: Sequence[OutputClaim]) -> Comparison:
    """Compare each output; the first with a problem is reported. Inputs are not looked at here."""
    comparison = _blank(question)
    claimed = {claim.path: claim for claim in claims}
    worst_abs = worst_rel = 0.0
    for path, want in leaves(question.expected):
        claim = claimed.pop(path, None) or _elsewhere(path, claims)
        if isinstance(want, torch.Tensor):
            found = _judge_tensor(comparison, question, entry, path, want, claim)
        else:
            found = _judge_scalar(comparison, question, path, want, claim)
        if found.problem != "none":
            return found
        worst_abs, worst_rel = max(worst_abs, found.worst_abs), max(worst_rel, found.worst_rel)
    for path, claim in claimed.items():
        return comparison.model_copy(
            update={"problem": "wrong_type", "output": path, "got": _said(claim), "want": "no such output"}
        )
    if question.by_property:
        return _judge_by_property(comparison, question, entry)
    return comparison.model_copy(update={"worst_abs": worst_abs, "worst_rel": worst_rel})


def mutated(question: Question) -> Comparison:
    """The candidate wrote into its inputs."""
    return _blank(question).model_copy(update={"problem": "input_mutation"})


def judge_values(question: Question, arguments: object, answer: Callable[[str, Any], Any]) -> bool:
    """Whether an answer made here (`answer` of path and expected leaf) passes as right."""
    made = mapped(question.expected, answer)
    if question.by_property and question.held is not None:
        return not _held_against(question, question.held, arguments, made)
    got: dict[str, Any] = dict(leaves(made))
    for path, want in leaves(question.expected):
        if isinstance(want, torch.Tensor):
            kind = dtype_kind(want.dtype)
            finding = compare_values(got[path], want, question.allowed(path, kind))
            if finding.problem != "none":
                return False
        elif isinstance(want, float):
            found = compare_values(_number(got[path]), _number(want), question.task.tolerance("float32"))
            if found.problem != "none":
                return False
        elif got[path] != want:
            return False
    return True


def _number(value: Any) -> torch.Tensor:
    return torch.tensor([float(value)], dtype=torch.float64)


def describe(tensor: torch.Tensor) -> str:
    """`float32 [4, 8] strides [8, 1]`."""
    return f"{dtype_name(tensor.dtype)} {list(tensor.shape)} strides {list(tensor.stride())}"


def _blank(question: Question) -> Comparison:
    return Comparison(
        workload=question.workload,
        distribution=question.distribution,
        problem="none",
        missing_weights=question.missing,
    )


def _judge_tensor(
    blank: Comparison,
    question: Question,
    entry: PoolEntry,
    path: str,
    want: torch.Tensor,
    claim: OutputClaim | None,
) -> Comparison:
    texts = {"output": path, "got": _said(claim), "want": describe(want)}
    if claim is None or claim.type != "torch.Tensor":
        return blank.model_copy(update={"problem": "wrong_type", **texts})
    if tuple(claim.shape) != tuple(want.shape):
        return blank.model_copy(update={"problem": "wrong_shape", **texts})
    if claim.dtype != dtype_name(want.dtype):
        return blank.model_copy(update={"problem": "wrong_dtype", **texts})
    if claim.device != str(want.device):
        texts = {**texts, "got": f"{texts['got']} on {claim.device}", "want": f"{texts['want']} on {want.device}"}
        return blank.model_copy(update={"problem": "wrong_type", **texts})
    if question.by_property:
        return blank
    got = entry.answers[path]
    allowed = question.allowed(path, dtype_kind(want.dtype))
    finding = compare_values(got, want, allowed)
    if finding.problem == "wrong_values":
        finding = _beside_exact(question, entry, path, got, allowed) or finding
    if finding.problem == "none":
        return blank.model_copy(update={"worst_abs": finding.worst_abs, "worst_rel": finding.worst_rel})
    return blank.model_copy(
        update={
            **_numbers(finding),
            "output": path,
            "untouched_share": _untouched_share(entry, path, got),
            "looks_like": _telling(question, entry, path, want),
        }
    )


def _untouched_share(entry: PoolEntry, path: str, got: torch.Tensor) -> float:
    """Share that was never written; of one-byte answers one element in 256 looks so by chance."""
    share = entry.poisons[path].untouched_share(got)
    return share if got.element_size() > 1 or share > BY_CHANCE else 0.0


def _telling(question: Question, entry: PoolEntry, path: str, want: torch.Tensor) -> LooksLike:
    got = entry.answers[path]
    found = looks_like(got, entry.drawn.tensors)
    if found in ("zeros", "constant"):
        return "" if question.distribution in SAME_EVERYWHERE else found
    # Before the rest: an earlier answer is one whatever else it is like.
    if question.given_before is not None and question.given_before(path, got):
        return "previous_output"
    if question.distribution in SAME_EVERYWHERE:
        return ""
    return found or ("low_precision" if is_near(got, want) else "")


def _beside_exact(
    question: Question, entry: PoolEntry, path: str, got: torch.Tensor, allowed: Tolerance | Bound
) -> Finding | None:
    """A second look at an answer that is far from the reference's: right if it is near the float64 run instead.

    Only what seemed wrong pays for that run. None where it is no nearer, or there is none.
    """
    if question.held is None:
        return None
    try:
        exact = exact_leaves(question.expected, question.held.exact(entry.drawn.arguments, question.seed))
    except CannotTell:
        return None
    if path not in exact:
        return None
    finding = compare_values(got.to(exact[path].dtype), exact[path], allowed)
    return finding if finding.problem == "none" else None


def _judge_by_property(blank: Comparison, question: Question, entry: PoolEntry) -> Comparison:
    assert question.held is not None
    answer = mapped(question.expected, lambda path, want: entry.answers.get(path, want))
    said = _held_against(question, question.held, entry.drawn.arguments, answer)
    if not said:
        return blank
    return blank.model_copy(
        update={"problem": "wrong_values", "wrong_share": 1.0, "pattern": f"the task's own check says: {said}"}
    )


def _held_against(question: Question, held: HeldWorkload, arguments: object, answer: object) -> str:
    """What the task's own check has against an answer; empty if it is right.

    One that it fails on is wrong: places that are out of range, say. A check that fails on the reference's own answer
    too is at fault itself, and its `TaskError` is raised.
    """
    try:
        return held.check(arguments, answer)
    except TaskError as error:
        held.check(arguments, question.expected)
        return " ".join(str(error).removeprefix(f"workload {held.name}, ").split())[:200]


def _judge_scalar(
    blank: Comparison, question: Question, path: str, want: object, claim: OutputClaim | None
) -> Comparison:
    texts = {"output": path, "got": _said(claim), "want": f"{type(want).__name__} {want!r}"[:200]}
    if claim is None or claim.value is None:
        return blank.model_copy(update={"problem": "wrong_type", **texts})
    try:
        got = decode_scalar(claim.value)
    except (Unsupported, ValueError, OverflowError):
        return blank.model_copy(update={"problem": "wrong_type", **texts})
    if type(got) is not type(want):
        return blank.model_copy(update={"problem": "wrong_type", **texts})
    if isinstance(got, float) and isinstance(want, float):
        # Python floats of a reference come from .item() of float32 as a rule.
        finding = compare_values(
            torch.tensor([got], dtype=torch.float64),
            torch.tensor([want], dtype=torch.float64),
            question.task.tolerance("float32"),
        )
        return blank if finding.problem == "none" else blank.model_copy(update={**_numbers(finding), **texts})
    if got == want:
        return blank
    return blank.model_copy(update={"problem": "wrong_values", "wrong_share": 1.0, **texts})


def _elsewhere(path: str, claims: Sequence[OutputClaim]) -> OutputClaim | None:
    """Instead of "nothing": what came at other paths (a tuple where a tensor was expected)."""
    if not claims:
        return None
    others = ", ".join(claim.path or "a single value" for claim in claims[:3])
    return OutputClaim(path=path, type=f"no {path or 'single'} output, but {others}"[:200])


def _numbers(finding: Finding) -> dict[str, Any]:
    return {
        "problem": finding.problem,
        "wrong_share": finding.wrong_share,
        "worst_abs": finding.worst_abs,
        "worst_rel": finding.worst_rel,
        "first": finding.first,
        "pattern": finding.pattern,
    }


def _said(claim: OutputClaim | None) -> str:
    """What the candidate says that it returned."""
    if claim is None:
        return "nothing"
    if claim.dtype:
        text = f"{claim.dtype} {list(claim.shape)} strides {list(claim.strides)}"
        return (text if claim.type == "torch.Tensor" else f"{claim.type}: {text}")[:200]
    value = "" if claim.value is None else f" {claim.value.text or claim.value.kind}"
    return f"{claim.type}{value}"[:200]

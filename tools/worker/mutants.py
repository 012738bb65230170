"""Answers that must not pass: without work behind them, to another question, or with less precision than asked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch

from kernelgate.tasks.qualify import COMPARED
from kernelgate.tools.kit.facts import Mutant, Trial
from kernelgate.tools.worker.answers import judge_values
from kernelgate.tools.worker.ignored import Reactions, ignored_trials
from kernelgate.tools.worker.structure import leaves, mapped, replaced, tensors_in
from kernelgate.tools.worker.trials import Tried
from kernelgate.tools.worker.variants import CannotTell, halved

MOST_TRIES: Final = 3
ENOUGH: Final = 2
"""A mutant that costs a run of the reference is not tried again on a workload once so many distributions told it."""
DEAR: Final[tuple[Mutant, ...]] = ("constant", "previous", "half", "half_inputs", "weights")


@dataclass
class Told:
    """How often a dear mutant was told on the workload so far."""

    workload: str = ""
    times: dict[Mutant, int] = field(default_factory=dict[Mutant, int])
    reactions: Reactions = field(default_factory=Reactions)

    def still_open(self, workload: str) -> list[Mutant]:
        """The dear mutants that are worth another trial."""
        if workload != self.workload:
            self.workload, self.times = workload, {}
        return [mutant for mutant in DEAR if self.times.get(mutant, 0) < ENOUGH]


def mutant_trials(tried: Tried, told: Told) -> tuple[Trial, ...]:
    """Each mutant judged on this draw, and on as many more as a check would make, until it fails once."""
    found: dict[Mutant, bool] = {}
    ignored: list[Trial] = []
    names: list[Mutant] = ["zeros", "passthrough", "tail", *told.still_open(tried.held.name)]
    tries = max(1, min(MOST_TRIES, COMPARED // len(tried.task.distributions)))
    for turn in range(tries):
        draw = tried if turn == 0 else Tried(tried.task, tried.held, tried.distribution)
        answers = _Answers(draw)
        if turn == 0:
            ignored = ignored_trials(draw, answers.other_draw, told.reactions)
        alive: list[Mutant] = [name for name in names if turn == 0 or found.get(name)]
        for name in alive:
            judged = answers.passes(name)
            if judged is not None:
                found[name] = judged
    for name in DEAR:
        if found.get(name) is False:
            told.times[name] = told.times.get(name, 0) + 1
    trials = [
        Trial(mutant=name, workload=tried.held.name, distribution=tried.distribution, passes=passes)
        for name, passes in found.items()
    ]
    return (*trials, *ignored)


class _Answers:
    """The mutants' answers to one draw."""

    def __init__(self, draw: Tried) -> None:
        self._draw = draw
        self._other: Tried | None = None
        self._halves: Any = None

    def passes(self, name: Mutant) -> bool | None:
        """Whether it passes as right; None where there is no such answer."""
        if name == "zeros":
            return self._judge(lambda _, want: _like(want, 0))
        if name == "constant":
            other = self.other
            return self._judge(lambda path, want: _like(want, _mean(other.get(path))))
        if name == "previous":
            other = self.other
            alike = all(_alike(other.get(path), want) for path, want in leaves(self._draw.expected))
            return self._judge(lambda path, _: other[path]) if alike else None
        if name == "tail":
            cut = mapped(self._draw.expected, lambda _, want: _without_tail(want))
            return None if self._draw.is_same(cut) else self._judge_whole(cut)
        if name == "passthrough":
            return self._passed_through()
        return self._other_weights() if name == "weights" else self._half(rounded=name == "half")

    def other_draw(self) -> Tried:
        """Other inputs of the kind, and the answer to them."""
        if self._other is None:
            draw = self._draw
            self._other = Tried(draw.task, draw.held, draw.distribution)
        return self._other

    @property
    def other(self) -> dict[str, Any]:
        """The answer to other inputs of the kind, by path."""
        return dict(leaves(self.other_draw().expected))

    def _judge(self, answer: Callable[[str, Any], Any]) -> bool:
        return judge_values(self._draw.question(), self._draw.drawn.arguments, answer)

    def _judge_whole(self, answer: object) -> bool:
        got = dict(leaves(answer))
        return self._judge(lambda path, want: got.get(path, want))

    def _passed_through(self) -> bool | None:
        """Any input in the place of any output of its shape, all the others right."""
        pairs = [
            (path, tensor)
            for path, want in leaves(self._draw.expected)
            for tensor in self._draw.drawn.tensors
            if isinstance(want, torch.Tensor) and tensor.shape == want.shape
        ]
        if not pairs:
            return None
        return any(self._judge_whole_but(path, tensor) for path, tensor in pairs)

    def _judge_whole_but(self, place: str, tensor: torch.Tensor) -> bool:
        """With one output exchanged."""
        return self._judge(lambda path, want: tensor.detach().contiguous().to(want.dtype) if path == place else want)

    def _of_variant(self, kind: Literal["half", "weights"]) -> Any:
        """The answer of a changed reference; raises `CannotTell`."""
        return self._draw.held.variant(kind, self._draw.drawn.arguments, self._draw.seed)

    def _other_weights(self) -> bool | None:
        try:
            return self._judge_whole(self._of_variant("weights"))
        except CannotTell:
            return None

    def _half(self, *, rounded: bool) -> bool | None:
        """Inputs and weights in half precision, and the answer too if `rounded`.

        An answer that is the same to the last bit is no worse one.
        """
        floats = [tensor for tensor in tensors_in(self._draw.expected) if tensor.dtype is torch.float32]
        if not floats:
            return None
        try:
            self._halves = self._of_variant("half") if self._halves is None else self._halves
        except CannotTell:
            return None
        answer = self._halves
        if rounded:
            answer = replaced(answer, lambda tensor: halved(tensor, self._draw.task.precision))
        if self._draw.is_same(answer):
            return None
        got = dict(leaves(answer))  # indices and counts jump where halves meet: only numbers are looked at
        return self._judge(lambda path, want: got[path] if _is_float(want) else want)


def _is_float(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _alike(other: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return isinstance(other, torch.Tensor) and other.shape == want.shape
    return type(other) is type(want)


def _like(want: Any, value: complex) -> Any:
    """The number in the form of an expected leaf."""
    if isinstance(want, torch.Tensor):
        if not (want.is_floating_point() or want.is_complex()):
            value = bool(round(value.real)) if want.dtype is torch.bool else round(value.real)
        return torch.full_like(want, value if want.is_complex() else value.real)
    if isinstance(want, bool | int | float):
        return type(want)(value.real)
    return want


def _mean(other: Any) -> complex:
    if isinstance(other, torch.Tensor) and other.numel():
        if other.is_complex():
            return complex(other.to(torch.complex128).mean().item())
        mean = float(other.to(torch.float64).mean().item())
    else:
        mean = float(other) if isinstance(other, int | float) else 0.0
    return complex(mean if mean == mean and abs(mean) != float("inf") else 0.0)


def _without_tail(want: Any) -> Any:
    """Its last row at zero; of a vector its last element."""
    if not isinstance(want, torch.Tensor) or want.numel() < 2:
        return want
    cut = want.clone()
    rows = cut.view(-1, cut.shape[-1]) if cut.dim() > 1 else cut
    rows[-1] = 0
    return cut

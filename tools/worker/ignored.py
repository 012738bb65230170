"""Does the answer react to each single input and weight? One is exchanged while all the others stay."""

import contextlib
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch

from kernelgate.tools.kit.facts import Trial
from kernelgate.tools.worker.answers import judge_values
from kernelgate.tools.worker.reference import TaskError
from kernelgate.tools.worker.structure import leaves, mapped
from kernelgate.tools.worker.trials import Tried

MOST_WEIGHTS: Final = 8
"""A module with more is not looked at weight by weight: each costs a run of the reference."""
MOST_TRIES: Final = 4
"""On a workload, of something that had no effect so far: the main distributions come first."""
EFFECT: Final = 0.1
"""Of the answer's root mean square: what moves no element so far has no effect that a task must tell apart."""


@dataclass
class Reactions:
    """What was found so far in one qualification."""

    weights_on: str = ""
    """The workload on which weights are looked at: the first; on others those alone that showed nothing there."""
    tries: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    told: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def is_open(self, workload: str, name: str) -> bool:
        """Whether another trial may tell something."""
        return (workload, name) not in self.told and self.tries.get((workload, name), 0) < MOST_TRIES

    def note(self, trial: Trial) -> None:
        """Learn from a trial; what passes although it had an effect is tried on."""
        place = (trial.workload, trial.of)
        if not trial.passes:
            self.told.add(place)
        elif not trial.effect:
            self.tries[place] = self.tries.get(place, 0) + 1


def ignored_trials(draw: Tried, other: Callable[[], Tried], reactions: Reactions) -> list[Trial]:
    """A trial for each input and weight that is still open on this workload; none where the answer is not finite."""
    workload = draw.held.name
    reactions.weights_on = reactions.weights_on or workload
    if not all(_is_finite(leaf) for _, leaf in leaves(draw.expected)):
        return []
    found: list[Trial] = []
    for name, answer in (*_inputs_exchanged(draw, other, reactions), *_weights_exchanged(draw, reactions)):
        got = dict(leaves(answer))
        if any(not _alike(got.get(path), want) for path, want in leaves(draw.expected)):
            continue
        trial = Trial(
            mutant="ignored", of=name, workload=workload, distribution=draw.distribution,
            passes=judge_values(draw.question(), draw.drawn.arguments, partial(_of_path, got)),
            effect=any(_differs(got[path], want) for path, want in leaves(draw.expected)),
        )  # fmt: skip
        reactions.note(trial)
        found.append(trial)
    return found


def _inputs_exchanged(draw: Tried, other: Callable[[], Tried], reactions: Reactions) -> Iterator[tuple[str, object]]:
    """The answer with one input of another draw; of a single input the mutant `previous` tells."""
    mine = [(f"input {n}", path, leaf) for n, (path, leaf) in enumerate(leaves(draw.drawn.arguments), start=1)]
    still_open = [(name, path, leaf) for name, path, leaf in mine if reactions.is_open(draw.held.name, name)]
    if len(mine) < 2 or not still_open:
        return
    others = dict(leaves(other().drawn.arguments))
    for name, path, leaf in still_open:
        exchanged = others.get(path)
        if not _alike(exchanged, leaf) or _same(exchanged, leaf):
            continue
        arguments = mapped(draw.drawn.arguments, partial(_exchanged, path, exchanged))
        # Inputs may belong together: one of another draw is then no input at all, and nothing is told.
        with contextlib.suppress(TaskError):
            yield name, draw.held.expect(arguments, draw.seed)


def _exchanged(place: str, new: Any, path: str, leaf: Any) -> Any:
    return new if path == place else leaf


def _of_path(answers: Mapping[str, Any], path: str, _: Any) -> Any:
    return answers[path]


def _weights_exchanged(draw: Tried, reactions: Reactions) -> Iterator[tuple[str, object]]:
    weights = dict(draw.held.built.module.named_parameters())
    if len(weights) > MOST_WEIGHTS:
        return
    first = draw.held.name == reactions.weights_on
    for key, weight in weights.items():
        name = f"weight {key}"
        if (reactions.weights_on, name) in reactions.told and not first:
            continue
        if weight.is_floating_point() and reactions.is_open(draw.held.name, name):
            with contextlib.suppress(TaskError), _changed(weight):
                yield name, draw.held.expect(draw.drawn.arguments, draw.seed)


@contextlib.contextmanager
def _changed(weight: torch.nn.Parameter) -> Generator[None, None, None]:
    """Other values of about the same size while it is entered; zeros and ones, too, become something else."""
    kept = weight.detach().clone()
    spread = float(kept.float().abs().mean()) or 1.0
    with torch.no_grad():
        weight.add_(torch.randn_like(weight) * (0.5 * spread))
    try:
        yield
    finally:
        with torch.no_grad():
            weight.copy_(kept)


def _alike(other: object, want: object) -> bool:
    if isinstance(want, torch.Tensor):
        return isinstance(other, torch.Tensor) and other.shape == want.shape and other.dtype == want.dtype
    return type(other) is type(want)


def _same(other: Any, want: Any) -> bool:
    return torch.equal(other, want) if isinstance(want, torch.Tensor) else bool(other == want)


def _is_finite(leaf: object) -> bool:
    if isinstance(leaf, torch.Tensor):
        return not (leaf.is_floating_point() or leaf.is_complex()) or bool(torch.isfinite(leaf).all())
    return not isinstance(leaf, float) or math.isfinite(leaf)


def _differs(got: Any, want: Any) -> bool:
    """Whether an output moved far enough."""
    if not isinstance(want, torch.Tensor):
        return not math.isclose(got, want, rel_tol=EFFECT) if isinstance(want, float) else got != want
    if not want.numel():
        return False
    if not (want.is_floating_point() or want.is_complex()):
        return not torch.equal(got, want)
    root_mean_square = want.abs().float().square().mean().sqrt()
    return bool((got - want).abs().max().float() > EFFECT * root_mean_square)

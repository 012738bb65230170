"""The reference's own error against its float64 run, and the bound that follows from it for each output.

The reference may be lucky where an honest kernel is not, so a float64 run with rounding noise counts beside it.
"""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from kernelgate.tasks.model import Distribution, Task
from kernelgate.tasks.tolerance import LIMITS, ROOM, OutputFacts, Source, atol_of, rtol_of
from kernelgate.tools.worker.compare import PIECE_ELEMENTS, dtype_kind, typical_size
from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.patterns import pieces_of
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.structure import leaves
from kernelgate.tools.worker.variants import CannotTell, exact_leaves

ENOUGH_ELEMENTS: Final = 1 << 16
"""The largest error of fewer is luck: they are calibrated on further draws."""
LARGEST: Final = 1e300
MOST_DRAWS: Final = 4
CHEAP_S: Final = 0.05
"""Further draws are for references of which a run takes less."""
NOISY_SHARE: Final = 0.99
"""Of the elements of a noisy run the worst hundredth does not count: where a comparison turns over (rounding to whole
numbers, a threshold) an element jumps, which is no error that all others may make."""
SAMPLED: Final = 1 << 20
"""The share is told from a regular sample of so many elements."""


def output_facts(
    task: Task,
    held: HeldWorkload,
    distribution: Distribution,
    drawn: Drawn,
    expected: object,
    seed: int,
    usual: Mapping[str, float],
) -> tuple[OutputFacts, ...]:
    """Of each output that is a tensor of floats: how far it is from float64, and how far an answer may be from it.

    `usual`: root mean square of outputs by path under usual inputs, as far as it is known.
    """
    floats = _floats(expected)
    errors: dict[str, list[_Error]] = {}
    noisy: dict[str, list[_Error]] = {}
    why = "its own check judges" if held.has_check else ""
    if not why and any(_source(task, leaf) == "calibrated" for leaf in floats.values()):
        try:
            elements = sum(leaf.numel() for leaf in floats.values())
            for turn in range(max(1, min(MOST_DRAWS, ENOUGH_ELEMENTS // max(1, elements)))):
                begun_s = time.perf_counter()
                if turn:
                    drawn = held.draw(distribution)
                    expected = held.expect(drawn.arguments, seed)
                exact = held.exact(drawn.arguments, seed)
                _add(errors, expected, exact)
                with contextlib.suppress(CannotTell):
                    _add(noisy, held.rounded(drawn.arguments, seed), exact)
                if time.perf_counter() - begun_s > CHEAP_S:
                    break
        except CannotTell as error:
            errors, why = {}, str(error)
    return tuple(
        _facts(task, path, leaf, errors.get(path, []), noisy.get(path, []), why, usual.get(path, 0.0))
        for path, leaf in floats.items()
    )


@dataclass(frozen=True)
class _Error:
    """One output of one draw, beside its float64 value."""

    flat: torch.Tensor
    truth: torch.Tensor


def _floats(answer: object) -> dict[str, torch.Tensor]:
    found = {path: leaf for path, leaf in leaves(answer) if isinstance(leaf, torch.Tensor)}
    return {path: leaf for path, leaf in found.items() if leaf.is_floating_point() or leaf.is_complex()}


def _add(errors: dict[str, list[_Error]], expected: object, exact: object) -> None:
    truth = exact_leaves(expected, exact)
    for path, leaf in _floats(expected).items():
        if path in truth and leaf.numel():
            errors.setdefault(path, []).append(_Error(_real(leaf), _real(truth[path])))


def with_bounds(task: Task, workload: str, distribution: Distribution, outputs: tuple[OutputFacts, ...]) -> Task:
    """The task with what was found of one workload under one distribution."""
    kept = [b for b in task.bounds if (b.workload, b.distribution) != (workload, distribution)]
    found = [bound for output in outputs if (bound := output.bound(workload, distribution)) is not None]
    return task.model_copy(update={"bounds": (*kept, *found)})


def _source(task: Task, tensor: torch.Tensor) -> Source:
    kind = dtype_kind(tensor.dtype)
    if kind in task.tolerances:
        return "stated"
    return "calibrated" if kind in LIMITS else "default"


def _facts(
    task: Task,
    path: str,
    want: torch.Tensor,
    errors: Sequence[_Error],
    noisy: Sequence[_Error],
    why: str,
    usual_rms: float,
) -> OutputFacts:
    kind, source = dtype_kind(want.dtype), _source(task, want)
    if source != "calibrated" or not errors:
        source = "default" if source == "calibrated" else source
        return OutputFacts(path=path, dtype=kind, source=source, why=why if source == "default" else "")
    pieces = [pair for error in errors for pair in _pieces(error.flat, error.truth)]
    rms = max(_rms(error.truth) for error in errors)
    own_rel = max(float(_relative(*pair, rms=rms).max()) for pair in pieces)
    noise_rel = max((_most(_relative(*_sample(error), rms=rms)) for error in noisy), default=0.0)
    rtol = rtol_of(kind, max(own_rel, noise_rel))
    own_abs = max(float(_beyond(*pair, share=rtol / ROOM).max()) for pair in pieces)
    noise_abs = max((_most(_beyond(*_sample(error), share=rtol / ROOM)) for error in noisy), default=0.0)
    size = _bounded(float(typical_size(want)))
    return OutputFacts(
        path=path, dtype=kind, source="calibrated", own_rel=_bounded(own_rel), own_abs=_bounded(own_abs),
        noise_rel=_bounded(noise_rel), noise_abs=_bounded(noise_abs), size=size, rms=rms, rtol=rtol,
        atol=atol_of(kind, _bounded(max(own_abs, noise_abs)), size, rms, usual_rms),
    )  # fmt: skip


def _sample(error: _Error) -> tuple[torch.Tensor, torch.Tensor]:
    step = max(1, error.truth.numel() // SAMPLED)
    return error.flat[::step], error.truth[::step]


def _most(differences: torch.Tensor) -> float:
    """The difference that a share of `NOISY_SHARE` does not exceed; of few elements the largest."""
    return float(differences.kthvalue(math.ceil(NOISY_SHARE * differences.numel())).values)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)


def _pieces(flat: torch.Tensor, truth: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(pieces_of(flat, PIECE_ELEMENTS), pieces_of(truth, PIECE_ELEMENTS), strict=True))


def _rms(truth: torch.Tensor) -> float:
    squares = [piece.square().nan_to_num(0.0, 0.0, 0.0).sum() for piece, _ in _pieces(truth, truth)]
    return _bounded(float((torch.stack(squares).sum() / truth.numel()).sqrt()))


def _bounded(number: float) -> float:
    """No infinity crosses a border: what overflows is beyond any cap all the same."""
    return min(number, LARGEST)


def _relative(got: torch.Tensor, truth: torch.Tensor, rms: float) -> torch.Tensor:
    """Relative errors of elements of that size or more; what is smaller or not finite has none."""
    magnitude = truth.abs()
    relative = ((got.double() - truth).abs() / magnitude).nan_to_num(0.0, 0.0, 0.0)
    return torch.where((magnitude >= rms) & (magnitude > 0), relative, 0.0)


def _beyond(got: torch.Tensor, truth: torch.Tensor, share: float) -> torch.Tensor:
    """Errors beyond a share of each element."""
    return ((got.double() - truth).abs() - share * truth.abs()).nan_to_num(0.0, 0.0, 0.0).clamp_min(0.0)

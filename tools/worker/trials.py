"""The reference judged by itself, and mutants judged as answers are: the numbers of a qualification."""

import gc
import itertools
import secrets
from collections.abc import Mapping
from typing import Any, Final

import torch

from kernelgate.tasks.model import Distribution, Task
from kernelgate.tools.kit.facts import ReferenceFacts
from kernelgate.tools.worker.answers import Question, judge_values
from kernelgate.tools.worker.calibration import output_facts, with_bounds
from kernelgate.tools.worker.compare import dtype_kind
from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.lending import storage_bytes
from kernelgate.tools.worker.patterns import count_true
from kernelgate.tools.worker.reference import SEED_BITS, HeldWorkload, TaskError
from kernelgate.tools.worker.structure import dtype_name, leaves, replaced

SPREAD_ELEMENTS: Final = 4 << 20
"""The spread of a larger output is told from a regular sample of so many elements: float64 copies are dear."""


class Tried:
    """The reference on one draw of inputs, and what is judged against it."""

    def __init__(self, task: Task, held: HeldWorkload, distribution: Distribution) -> None:
        """Draws inputs and runs the reference; raises `TaskError`, also where it writes into its inputs."""
        make_room(held)
        self.held = held
        self.distribution: Distribution = distribution
        self.drawn: Drawn = held.draw(distribution)
        self.seed = secrets.randbits(SEED_BITS)
        before = [storage_bytes(tensor).clone() for tensor in self.drawn.tensors]
        self.expected: Any = held.expect(self.drawn.arguments, self.seed)
        for tensor, bytes_before in zip(self.drawn.tensors, before, strict=True):
            if not torch.equal(storage_bytes(tensor), bytes_before):
                raise TaskError(f"the reference of workload {held.name} writes into its inputs: it must work on a copy")
        self.task = task

    def question(self) -> Question:
        """How answers to it are judged."""
        return Question(self.task, self.held.name, self.distribution, self.expected, held=self.held, seed=self.seed)

    def is_same(self, answer: object) -> bool:
        """Whether an answer is the expected one, bit by bit."""
        got = dict(leaves(answer))
        return all(
            _equal(got.get(path), want) if isinstance(want, torch.Tensor) else got.get(path) == want
            for path, want in leaves(self.expected)
        )


def make_room(held: HeldWorkload) -> None:
    """Where another call would not fit: free what only cycles hold, an attempt that ran out of memory for one.

    Modules that torch imports in the middle of a call hold that call's frames, and with them its tensors.
    """
    if not held.fits():
        gc.collect()


def reference_facts(tried: Tried, usual: Mapping[str, float]) -> ReferenceFacts:
    """What the reference is like on one draw, run once more on the same input; the draw learns its bounds.

    `usual`: root mean square of outputs by path under usual inputs, as far as it is known.
    """
    held, drawn = tried.held, tried.drawn
    tensors = [leaf for _, leaf in leaves(tried.expected) if isinstance(leaf, torch.Tensor)]
    finite = all(_is_finite(tensor) for tensor in tensors)
    judged = finite or tried.distribution == "nonfinite"
    outputs = (
        ()
        if not judged
        else output_facts(tried.task, held, tried.distribution, drawn, tried.expected, tried.seed, usual)
    )
    make_room(held)
    tried.task = with_bounds(tried.task, held.name, tried.distribution, outputs)
    again = dict(leaves(held.expect(drawn.arguments, tried.seed)))
    return ReferenceFacts(
        workload=held.name,
        distribution=tried.distribution,
        finite=finite,
        deterministic=_judged(tried, again),
        plain_weights=held.built.plain_weights,
        refused_by_own_check=held.check(drawn.arguments, tried.expected) if held.has_check else "",
        output_std=_spread(tensors),
        unsettled_share=_unsettled_share(tried),
        bytes_needed=held.sizes.call_bytes,
        overrides=held.overrides,
        made_small=held.made_small,
        inputs=tuple(_form(leaf) for _, leaf in leaves(drawn.arguments)),
        outputs=outputs,
    )


def _judged(tried: Tried, again: dict[str, Any]) -> bool:
    """Whether the second answer would pass as right; by the values, also where the task has a check of its own."""
    question = tried.question()
    plain = Question(question.task, question.workload, question.distribution, question.expected)
    return judge_values(plain, tried.drawn.arguments, lambda path, _: again[path])


def _unsettled_share(tried: Tried) -> float:
    """Of the whole numbers in its answer the share that inputs change which differ by rounding alone: mostly ties."""
    whole = {
        path: want
        for path, want in leaves(tried.expected)
        if isinstance(want, torch.Tensor) and dtype_kind(want.dtype) == "integer" and want.numel()
    }
    continuous = set(tried.drawn.continuous)
    if not whole or not continuous or tried.held.has_check:
        return 0.0
    position = itertools.count()
    near = replaced(tried.drawn.arguments, lambda x: _nudged(x) if next(position) in continuous else x)
    got = dict(leaves(tried.held.expect(near, tried.seed)))
    differing = sum(_differing(got.get(path), want) for path, want in whole.items())
    return differing / sum(want.numel() for want in whole.values())


def _nudged(tensor: torch.Tensor) -> torch.Tensor:
    if dtype_kind(tensor.dtype) == "float8":
        return tensor
    limits = torch.finfo(tensor.dtype)
    return tensor + torch.randn_like(tensor) * (2 * limits.eps * tensor.abs() + 16 * limits.tiny)


def _differing(got: object, want: torch.Tensor) -> int:
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        return want.numel()
    return count_true(torch.ne(got, want))


def _form(leaf: object) -> str:
    """`float32 [64, 256]`, or the type of an input that is no tensor."""
    if isinstance(leaf, torch.Tensor):
        return f"{dtype_name(leaf.dtype)} {list(leaf.shape)}"
    return type(leaf).__name__


def _equal(got: object, want: torch.Tensor) -> bool:
    return isinstance(got, torch.Tensor) and got.shape == want.shape and torch.equal(got.to(want.dtype), want)


def _is_finite(tensor: torch.Tensor) -> bool:
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        return True
    return bool(torch.isfinite(tensor.to(torch.float32) if tensor.dtype.itemsize == 1 else tensor).all())


def _spread(tensors: list[torch.Tensor]) -> float:
    """Standard deviation of the largest output; 0 for a single element or where it is not finite."""
    largest = max(tensors, key=lambda tensor: tensor.numel(), default=None)
    if largest is None or largest.numel() < 2:
        return 0.0
    values = torch.view_as_real(largest) if largest.dtype.is_complex else largest
    values = values.reshape(-1)[:: max(1, values.numel() // SPREAD_ELEMENTS)]
    spread = float(values.to(torch.float64).std(correction=0).item())
    return spread if spread == spread and spread != float("inf") else 0.0

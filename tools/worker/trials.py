"""The reference judged by itself, and mutants judged under the task's tolerance: the numbers of a qualification."""

import secrets
from typing import Final

import torch

from kernelgate.tasks.model import Distribution, Task
from kernelgate.tools.kit.facts import ReferenceFacts, Trial
from kernelgate.tools.worker.answers import judge_values
from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.lending import storage_bytes
from kernelgate.tools.worker.reference import SEED_BITS, HeldWorkload, TaskError
from kernelgate.tools.worker.structure import dtype_name, leaves

SPREAD_ELEMENTS: Final = 4 << 20
"""The spread of a larger output is told from a regular sample of so many elements: float64 copies are dear."""


def reference_facts(task: Task, held: HeldWorkload, distribution: Distribution) -> ReferenceFacts:
    """Run the reference twice on the same input; raises `TaskError` where it writes into its inputs."""
    drawn = held.draw(distribution)
    before = [storage_bytes(tensor).clone() for tensor in drawn.tensors]
    seed = secrets.randbits(SEED_BITS)
    first = held.expect(drawn.arguments, seed)
    for tensor, bytes_before in zip(drawn.tensors, before, strict=True):
        if not torch.equal(storage_bytes(tensor), bytes_before):
            raise TaskError(f"the reference of workload {held.name} writes into its inputs: it must work on a copy")
    again = {path: leaf for path, leaf in leaves(held.expect(drawn.arguments, seed)) if isinstance(leaf, torch.Tensor)}
    tensors = [leaf for _, leaf in leaves(first) if isinstance(leaf, torch.Tensor)]
    return ReferenceFacts(
        workload=held.name,
        distribution=distribution,
        finite=all(_is_finite(tensor) for tensor in tensors),
        deterministic=judge_values(task, first, lambda path, _: again[path]),
        output_std=_spread(tensors),
        bytes_needed=held.sizes.call_bytes,
        overrides=held.overrides,
        inputs=tuple(_form(leaf) for _, leaf in leaves(drawn.arguments)),
    )


def _form(leaf: object) -> str:
    """`float32 [64, 256]`, or the type of an input that is no tensor."""
    if isinstance(leaf, torch.Tensor):
        return f"{dtype_name(leaf.dtype)} {list(leaf.shape)}"
    return type(leaf).__name__


def mutant_trials(task: Task, held: HeldWorkload, distribution: Distribution) -> tuple[Trial, ...]:
    """Zeros, and the first input that has an output's shape: each must fail, or the tolerance is worth nothing."""
    drawn = held.draw(distribution)
    expected = held.expect(drawn.arguments, secrets.randbits(SEED_BITS))
    found = [
        Trial(
            mutant="zeros",
            workload=held.name,
            distribution=distribution,
            passes=judge_values(task, expected, lambda _, want: torch.zeros_like(want)),
        )
    ]
    passed = _passed_through(drawn, expected)
    if passed is not None:
        path, tensor = passed
        answers = judge_values(task, expected, lambda at, want: tensor.to(want.dtype) if at == path else want)
        found.append(Trial(mutant="passthrough", workload=held.name, distribution=distribution, passes=answers))
    return tuple(found)


def _passed_through(drawn: Drawn, expected: object) -> tuple[str, torch.Tensor] | None:
    for path, want in leaves(expected):
        for tensor in drawn.tensors:
            if isinstance(want, torch.Tensor) and tensor.shape == want.shape:
                return path, tensor.detach().contiguous()
    return None


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

"""A task tried by its referee: the reference on one draw, then the mutants on the same."""

from typing import Final

from kernelgate.tasks.model import Distribution, Task
from kernelgate.tools.kit.facts import ReferenceFacts, Trial
from kernelgate.tools.worker.mutants import Told, mutant_trials
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.trials import Tried, reference_facts

USUAL: Final[frozenset[Distribution]] = frozenset({"original", "normal"})
"""Tried first."""


class Qualifying:
    """Of one call."""

    def __init__(self, task: Task) -> None:
        """Nothing was tried yet."""
        self._task = task
        self._tried: Tried | None = None
        self._told = Told()
        self._usual: dict[str, dict[str, float]] = {}
        """Workload → root mean square of its outputs by path, under the inputs that are meant."""

    def reference(self, held: HeldWorkload, distribution: Distribution) -> ReferenceFacts:
        """Run it twice, and in float64; raises `TaskError`."""
        self._tried = None  # the draw before this one: two at once may be more than there is memory for
        held.require_memory()
        self._tried = Tried(self._task, held, distribution)
        usual = self._usual.setdefault(held.name, {})
        facts = reference_facts(self._tried, usual)
        if distribution in USUAL:
            usual.update({output.path: max(output.rms, usual.get(output.path, 0.0)) for output in facts.outputs})
        return facts

    def trials(self, workload: str, distribution: Distribution) -> tuple[Trial, ...]:
        """Mutants judged by the bounds that `reference` has just found."""
        tried = self._tried
        if tried is None or (tried.held.name, tried.distribution) != (workload, distribution):
            raise RuntimeError("trials() needs the bounds of the same draw: call reference() first")
        return mutant_trials(tried, self._told)

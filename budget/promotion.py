"""What all promotion rules share: the shape of a rule, what it sees at the door, and how exploration overrides it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kernelgate.budget.model import Decision, History, Promotion, Rung, Scored, Verdict
from kernelgate.tasks.model import Frozen


class Seen(Frozen):
    """The compact input of a decision; a rule adds what it looks at. All of it is stored in `Decision.saw`."""

    candidate_id: str
    rung: Rung
    override_asked: bool
    """A written reason to promote against the rule came along."""
    overrides_left: int
    last_seq: int
    """Last event of the book when the rule looked."""


SeenT = TypeVar("SeenT", bound=Seen)


@dataclass(frozen=True)
class Rule(Generic[SeenT]):
    """One promotion rule: two pure functions and their parameters."""

    name: str
    version: int
    """Raised whenever the same input could give another answer."""
    defaults: Mapping[str, float]
    limits: Mapping[str, tuple[float, float]]
    """Smallest and largest value of each parameter."""
    seen: type[SeenT]
    observe: Callable[[History, Promotion, Mapping[str, float]], SeenT]
    decide_from: Callable[[SeenT, Mapping[str, float]], Decision]

    def decide(self, history: History, request: Promotion, parameters: Mapping[str, float]) -> Decision:
        """Look at the history, then decide from what was seen."""
        return self.decide_from(self.observe(history, request, parameters), parameters)

    def parameters(self, given: Mapping[str, float]) -> dict[str, float]:
        """The given parameters over the defaults.

        Raises:
            ValueError: an unknown name, or a value outside its limits.
        """
        unknown = sorted(set(given) - set(self.defaults))
        if unknown:
            known = ", ".join(sorted(self.defaults)) or "none"
            raise ValueError(f"rule {self.name} has no parameter {unknown[0]!r}; its parameters are: {known}")
        chosen = {name: float(given.get(name, default)) for name, default in self.defaults.items()}
        for name, value in chosen.items():
            low, high = self.limits[name]
            if not low <= value <= high:
                raise ValueError(
                    f"parameter {name} of rule {self.name} must be from {low:g} to {high:g}, got {value:g}"
                )
        return chosen


def incumbent_of(history: History) -> Scored | None:
    """The best precisely measured candidate; ties go to the lower cost, then to the older id."""
    settled = [scored for scored in history.precise if scored.verdict is not Verdict.ambiguous]
    return min(settled, key=order_of, default=None)


def order_of(scored: Scored) -> tuple[float, float, int]:
    """Sort key: highest ratio first, then lower cost, then older id."""
    return (-scored.ratio, scored.device_s, int(scored.candidate_id[1:]))


def conclude(
    rule: str,
    version: int,
    seen: Seen,
    parameters: Mapping[str, float],
    *,
    admit: bool,
    why: str,
    missing: str = "",
) -> Decision:
    """Turn a rule's answer into a decision; the exploration purse buys off a refusal that has a written reason."""
    overridden = not admit and seen.override_asked and seen.overrides_left > 0
    if overridden:
        why = f"Admitted against the rule from the exploration purse ({seen.overrides_left - 1} left after it). {why}"
    elif not admit and seen.override_asked:
        missing = f"{missing} The exploration purse is empty, so a reason does not help."
    return Decision(
        rule=rule,
        rule_version=version,
        parameters=dict(parameters),
        saw=seen.model_dump(mode="json"),
        admit=admit or overridden,
        overridden=overridden,
        why=why,
        missing="" if admit or overridden else missing,
    )

"""A fixed bar: precise is open to whatever could still reach a given ratio."""

from collections.abc import Mapping
from typing import Final

from kernelgate.budget.model import Decision, History, Promotion, Rung
from kernelgate.budget.promotion import Rule, Seen, conclude

VERSION: Final = 1
DEFAULTS: Final = {"min_ratio": 1.0}
"""`min_ratio`: baseline time / candidate time that quick's upper bound must reach."""
LIMITS: Final = {"min_ratio": (0.0, 1e6)}


class ThresholdSeen(Seen):
    """What the threshold looks at."""

    own_ratio: float | None
    """At quick; None if it was not measured."""
    own_high: float = 0.0


def observe(history: History, request: Promotion, parameters: Mapping[str, float]) -> ThresholdSeen:
    """Reduce the history to what the rule looks at."""
    own = next((scored for scored in history.quick if scored.candidate_id == request.candidate_id), None)
    return ThresholdSeen(
        candidate_id=request.candidate_id,
        rung=request.rung,
        override_asked=request.override_reason is not None,
        overrides_left=history.overrides_left,
        last_seq=history.last_seq,
        own_ratio=own.ratio if own else None,
        own_high=own.high if own else 0.0,
    )


def decide_from(seen: ThresholdSeen, parameters: Mapping[str, float]) -> Decision:
    """Decide from the compact input alone."""
    admit, why, missing = _answer(seen, parameters["min_ratio"])
    return conclude("threshold", VERSION, seen, parameters, admit=admit, why=why, missing=missing)


def _answer(seen: ThresholdSeen, bar: float) -> tuple[bool, str, str]:
    who = seen.candidate_id
    if seen.rung is not Rung.precise:
        return True, f"Only {Rung.precise} is guarded; {who} may enter {seen.rung}.", ""
    if seen.own_ratio is None:
        return False, f"{who} has no quick result in this environment.", "A quick result of this candidate."
    own = f"{who} has ratio {seen.own_ratio:.3f} with upper bound {seen.own_high:.3f} at quick"
    if seen.own_high >= bar:
        return True, f"{own}; the bar is {bar:.3f}.", ""
    return False, f"{own}, below the bar {bar:.3f}.", f"An upper bound of at least {bar:.3f} at quick."


RULE: Final = Rule("threshold", VERSION, DEFAULTS, LIMITS, ThresholdSeen, observe, decide_from)


def decide(history: History, request: Promotion, parameters: Mapping[str, float]) -> Decision:
    """Whether a candidate may enter a rung."""
    return RULE.decide(history, request, parameters)

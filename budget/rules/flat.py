"""No gate: everything is admitted and recorded, for comparison with rules that refuse."""

from collections.abc import Mapping
from typing import Final

from kernelgate.budget.model import Decision, History, Promotion
from kernelgate.budget.promotion import Rule, Seen, conclude

VERSION: Final = 1
DEFAULTS: Final[Mapping[str, float]] = {}
LIMITS: Final[Mapping[str, tuple[float, float]]] = {}


def observe(history: History, request: Promotion, parameters: Mapping[str, float]) -> Seen:
    """Note who asked; nothing else matters."""
    return Seen(
        candidate_id=request.candidate_id,
        rung=request.rung,
        override_asked=request.override_reason is not None,
        overrides_left=history.overrides_left,
        last_seq=history.last_seq,
    )


def decide_from(seen: Seen, parameters: Mapping[str, float]) -> Decision:
    """Admit."""
    why = f"The rule flat admits everything; {seen.candidate_id} may enter {seen.rung}."
    return conclude("flat", VERSION, seen, parameters, admit=True, why=why)


RULE: Final = Rule("flat", VERSION, DEFAULTS, LIMITS, Seen, observe, decide_from)


def decide(history: History, request: Promotion, parameters: Mapping[str, float]) -> Decision:
    """Whether a candidate may enter a rung."""
    return RULE.decide(history, request, parameters)

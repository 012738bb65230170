"""A stream played to its end: which call comes next, and what a rule would have spent and found on a recorded truth.

How a stream is played, through a server or on a truth alike (`steps`):

- Candidates come in order. Each is compiled, checked and timed quickly, as far as it passes.
- At the door of precise the rule decides, on what was measured until then.
- A candidate that it refuses there is asked about once more when the stream is over, best quick ratio first (then the
  older one): the share that may enter grows with the stream, and the incumbent has changed.
- After that, where an exploration purse is given, what is still refused is bought off, best quick ratio first, while
  the purse lasts.
- A call that the budget cannot pay whole is not made, and the play ends there: partial.
- A source that comes twice (`twin_of`) is one candidate: a rung that it has behind it is answered as the book answers
  it, free, without its rule, and without a second place in the ranks.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kernelgate.budget.history import Fold, Timing
from kernelgate.budget.ladder.model import Outcome, Played, Point, Tried, Truth
from kernelgate.budget.model import LADDER, PASSING, Budget, Decision, History, Promotion, Purse, Rung
from kernelgate.budget.promotion import Rule, incumbent_of

EXPLORING: Final = "The stream is over; the exploration purse is spent on the best that was refused."
"""Written reason of a promotion against the rule."""
_PLENTY: Final = 1_000_000
"""Calls of a run whose budget is counted in device seconds alone."""
_ROUNDING_S: Final = 1e-9


class Step(NamedTuple):
    """The next call of a play."""

    id: str
    rung: Rung
    again: bool = False
    """It was refused at this door before."""
    reason: str | None = None
    """To promote it against the rule."""


def steps(order: Iterable[str], overrides: int = 0) -> Generator[Step, Outcome | None, None]:
    """The calls of a play, one by one: send back what each came to, None for a refusal at the door.

    Args:
        order: ids of the candidates.
        overrides: the exploration purse, in calls.
    """
    refused: list[tuple[float, int, str]] = []
    for place, candidate in enumerate(order):
        ratio = 0.0
        for rung in LADDER:
            outcome = yield Step(candidate, rung)
            if outcome is None:
                refused += [(-ratio, place, candidate)] if rung is Rung.precise else []
                break
            if outcome.verdict not in PASSING[rung]:
                break
            ratio = outcome.ratio or ratio
    still: list[str] = []
    for _, _, candidate in sorted(refused):
        if (yield Step(candidate, Rung.precise, again=True)) is None:
            still.append(candidate)
    for candidate in still[: max(0, overrides)]:
        yield Step(candidate, Rung.precise, again=True, reason=EXPLORING)


def play(
    truth: Truth,
    rule: Rule[Any],
    parameters: Mapping[str, float],
    order: Sequence[str] | None = None,
    budget_device_s: float | None = None,
    *,
    overrides: int = 0,
) -> Played:
    """What a rule would have spent and found, had the truth's candidates come through its gate.

    Args:
        truth: what each candidate came to without a gate.
        rule: the rule of the gate, asked over a history that is folded as the book folds it.
        parameters: of the rule; those that are missing have its defaults.
        order: ids of the truth's candidates in another order, or some of them; default: that of the truth.
        budget_device_s: device seconds that may be charged; default: no limit.
        overrides: promotions against the rule that are spent when the stream is over.

    Raises:
        ValueError: the order names a candidate twice or one that the truth lacks, or a parameter is wrong.
    """
    chosen = rule.parameters(parameters)
    by_id = {tried.id: tried for tried in truth.tried}
    ids = list(by_id) if order is None else list(order)
    if len(set(ids)) != len(ids) or not set(ids) <= set(by_id):
        raise ValueError("an order names candidates of the truth, each at most once")
    firsts = {tried.id: tried.twin_of or tried.id for tried in truth.tried}
    places = {first: f"c{number}" for number, first in enumerate(dict.fromkeys(firsts[each] for each in ids), 1)}
    gate = _Gate(rule, chosen, {each: places[firsts[each]] for each in ids}, overrides)
    purse_s = float("inf") if budget_device_s is None else budget_device_s
    partial, ended = not truth.complete, False
    calls = steps(ids, overrides)
    step = next(calls, None)
    while step is not None:
        # What the first of twins cost is what any of them costs that comes first here.
        outcome = _recorded(by_id.get(firsts[step.id], by_id[step.id]), step.rung)
        if outcome is not None and gate.answers(step):
            outcome = _recorded(by_id[step.id], step.rung) or outcome
            gate.answer(step, outcome)
        elif outcome is None:
            # A truth that was cut short, or in which a rung fell out: nothing is known of what comes behind.
            partial = True
        elif gate.charged_s + outcome.device_s > purse_s + _ROUNDING_S:
            partial = ended = True  # the book looks into the purse first, and asks its rule then
            break
        elif gate.opens(step):
            gate.book(step, outcome)
        else:
            outcome = None
        try:
            step = calls.send(outcome)
        except StopIteration:
            step = None
    return gate.played(truth.stream, partial=partial, ended=ended)


def _recorded(tried: Tried, rung: Rung) -> Outcome | None:
    return next((outcome for outcome in tried.outcomes if outcome.rung is rung), None)


@dataclass
class _Gate:
    """A run without a server: what was measured and charged, and the rule at the door of precise."""

    rule: Rule[Any]
    parameters: Mapping[str, float]
    numbers: Mapping[str, str]
    """Id in the stream → id as the book would give it, by age."""
    overrides: int
    fold: Fold = field(default_factory=Fold)
    overlaps: list[int] = field(default_factory=list[int])
    seq: int = 0
    overridden: int = 0
    wall_s: float = 0.0
    best: str | None = None
    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(map(str, LADDER), 0))
    device_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(map(str, LADDER), 0.0))
    admitted: list[str] = field(default_factory=list[str])
    refused: dict[str, None] = field(default_factory=dict[str, None])
    measured: set[tuple[str, Rung]] = field(default_factory=set[tuple[str, Rung]])
    curve: list[Point] = field(default_factory=list[Point])

    @property
    def charged_s(self) -> float:
        return sum(self.device_s.values())

    def answers(self, step: Step) -> bool:
        """Whether the book has the answer already, from a twin."""
        return (self.numbers[step.id], step.rung) in self.measured

    def answer(self, step: Step, outcome: Outcome) -> None:
        """Let a twin through: it is a call, and took its time."""
        self.calls[step.rung] += 1
        self.wall_s = round(self.wall_s + (outcome.wall_s if outcome.device_s == 0.0 else 0.0), 9)
        if step.rung is Rung.precise:
            self.refused.pop(step.id, None)
            self.admitted.append(step.id)

    def opens(self, step: Step) -> bool:
        """Whether the rule lets a step in, which is asked at precise alone."""
        self.seq += 1
        if step.rung is not Rung.precise:
            return True
        promotion = Promotion(candidate_id=self.numbers[step.id], rung=step.rung, override_reason=step.reason)
        decision: Decision = self.rule.decide(self._history(), promotion, self.parameters)
        if not decision.admit:
            self.refused[step.id] = None
            return False
        self.refused.pop(step.id, None)
        self.admitted.append(step.id)
        self.overridden += decision.overridden
        if not decision.overridden and by_overlap(decision):
            self.overlaps.append(self.seq)
        return True

    def book(self, step: Step, outcome: Outcome) -> None:
        """Charge a call, and let the rule see what it said."""
        self.seq += 1
        rung = step.rung
        self.measured.add((self.numbers[step.id], rung))
        self.calls[rung] += 1
        self.device_s[rung] = round(self.device_s[rung] + outcome.device_s, 9)
        self.wall_s = round(self.wall_s + outcome.wall_s, 9)
        if rung not in (Rung.quick, Rung.precise):
            return
        self.fold.add(Timing(
            rung, self.numbers[step.id], outcome.verdict, outcome.ratio, outcome.low, outcome.high,
            outcome.device_s, self.seq,
        ))  # fmt: skip
        if rung is Rung.precise:
            self._improve(step, outcome)

    def _improve(self, step: Step, outcome: Outcome) -> None:
        incumbent = incumbent_of(self._history())
        if incumbent is None or incumbent.candidate_id != self.numbers[step.id]:
            return
        self.best = step.id
        self.curve.append(Point(device_s=self.charged_s, wall_s=self.wall_s, id=step.id, ratio=outcome.ratio or 0.0))

    def _history(self) -> History:
        left = Budget(precise_calls=_PLENTY, override_calls=max(0, self.overrides - self.overridden))
        return self.fold.history(self.overlaps, Purse(granted=left), self.seq - 1)

    def played(self, stream: str, *, partial: bool, ended: bool) -> Played:
        """What came of it."""
        return Played(
            stream=stream, rule=self.rule.name, parameters=dict(self.parameters), live=False, calls=self.calls,
            device_s=self.device_s, wall_s=self.wall_s, best=self.best, admitted=tuple(self.admitted),
            refused=tuple(self.refused), curve=tuple(self.curve), partial=partial, ended=ended,
        )  # fmt: skip


def by_overlap(decision: Decision) -> bool:
    """Whether a decision to admit stands on an interval that overlaps the incumbent's, as the book counts them."""
    rank, cut = decision.saw.get("rank", 0), decision.saw.get("cut", 0)
    return isinstance(rank, int) and isinstance(cut, int) and rank > cut

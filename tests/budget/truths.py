"""Truths made by hand: candidates by what quick and precise say of them."""

from kernelgate.budget.ladder.model import Outcome, Tried, Truth
from kernelgate.budget.model import Rung, Verdict

COST_S = {Rung.compile: 0.0, Rung.check: 0.25, Rung.quick: 0.5, Rung.precise: 2.0}
"""Sums of these are exact in floating point."""
WALL_S = 1.0


def outcome(rung: Rung, verdict: Verdict, ratio: float | None = None, spread: float = 0.0) -> Outcome:
    low, high = (None, None) if ratio is None else (ratio - spread, ratio + spread)
    return Outcome(rung=rung, verdict=verdict, ratio=ratio, low=low, high=high, device_s=COST_S[rung], wall_s=WALL_S)


def timed(
    name: str, precise: float, quick: float | None = None, *, spread: float = 0.01, quick_spread: float = 0.02,
    quick_verdict: Verdict = Verdict.undecided, verdict: Verdict = Verdict.same,
) -> Tried:  # fmt: skip
    """A candidate that passed every rung."""
    return Tried(id=name, outcomes=(
        outcome(Rung.compile, Verdict.built),
        outcome(Rung.check, Verdict.correct),
        outcome(Rung.quick, quick_verdict, precise if quick is None else quick, quick_spread),
        outcome(Rung.precise, verdict, precise, spread),
    ))  # fmt: skip


def broken(name: str) -> Tried:
    """A candidate that does not build."""
    return Tried(id=name, outcomes=(outcome(Rung.compile, Verdict.build_failed),))


def wrong(name: str) -> Tried:
    """A candidate that builds and is wrong."""
    return Tried(id=name, outcomes=(outcome(Rung.compile, Verdict.built), outcome(Rung.check, Verdict.wrong_values)))


def truth(*tried: Tried, stream: str = "softmax", complete: bool = True) -> Truth:
    return Truth(stream=stream, task="softmax", device="test", tried=tried, complete=complete)

"""Streams with a known truth, their noise and costs drawn from recorded readings. Pure, the same for the same seed.

What an agent does is assumed, kind by kind (`KINDS`); what a measurement scatters by and costs is read (`Noise`).
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from kernelgate.budget.ladder.model import Outcome, Tried, Truth
from kernelgate.budget.ladder.noise import Cost, Noise
from kernelgate.budget.model import Rung, Verdict

CANDIDATES: Final = 40
"""As many as the streams of the six tasks have at least."""
NOISE_FLOOR: Final = 0.005
"""Half a percent: the least floor of `precise`, under which no gap is called a gain."""
DEVIATIONS: Final = 1.96
"""An interval of 95 % has so many standard deviations to each side."""
_SPREAD: Final = 0.4
"""Of the logarithm of ratios among unrelated kernels: from half to twice the middle is nearly all of them."""
_MIDDLE: Final = math.log(1.2)
_TIE: Final = 0.004
"""Of near ties: below what precise tells apart by half a percent."""
_BAD_QUICK: Final = 0.5
"""Error of a quick that ranks badly, beside a spread of 0.4: it orders more than every fourth pair the other way."""
_WRONG: Final = 0.75


class Kind(NamedTuple):
    """What an agent does."""

    true_logs: Callable[[random.Random, int], list[tuple[float, int | None]]]
    """Logarithm of the true ratio of each candidate, and the place of its parent."""
    more_error: float = 0.0
    """Standard deviation of an error of quick that is assumed, beside the recorded ones."""
    failing: float | None = None
    """Share of the candidates that fail, if it is not the recorded one."""


def _shuffled(draws: random.Random, count: int) -> list[tuple[float, int | None]]:
    return [(draws.gauss(_MIDDLE, _SPREAD), None) for _ in range(count)]


def _climbing(
    draws: random.Random, count: int, drift: float, step: float, until: int
) -> list[tuple[float, int | None]]:
    """Each candidate is made from the best so far; behind `until` changes only cost."""
    found: list[tuple[float, int | None]] = [(draws.gauss(0.0, 0.2), None)]
    best = 0
    for place in range(1, count):
        change = draws.gauss(drift, step) if place < until else -abs(draws.gauss(0.0, step))
        found.append((found[best][0] + change, best))
        if found[place][0] > found[best][0]:
            best = place
    return found


def _improving(draws: random.Random, count: int) -> list[tuple[float, int | None]]:
    return _climbing(draws, count, -0.05, 0.1, count)  # about every third child is faster than its parent


def _stagnating(draws: random.Random, count: int) -> list[tuple[float, int | None]]:
    return _climbing(draws, count, 0.05, 0.15, max(2, count // 4))


def _near_ties(draws: random.Random, count: int) -> list[tuple[float, int | None]]:
    """A quarter of them stand within about a percent at the top."""
    top = _MIDDLE + 2 * _SPREAD
    return [
        (draws.gauss(top, _TIE), None)
        if draws.random() < 0.25
        else (min(top - 0.02, draws.gauss(_MIDDLE, _SPREAD)), None)
        for _ in range(count)
    ]


KINDS: Final[Mapping[str, Kind]] = {
    "shuffled": Kind(_shuffled),
    "improving": Kind(_improving),
    "stagnating": Kind(_stagnating),
    "near_ties": Kind(_near_ties),
    "mostly_wrong": Kind(_shuffled, failing=_WRONG),
    "quick_ranks_badly": Kind(_shuffled, more_error=_BAD_QUICK),
}


def simulate(kind: str, noise: Noise, count: int, seed: int, candidates: int = CANDIDATES) -> Iterator[Truth]:
    """So many streams of a kind.

    Args:
        kind: one of `KINDS`.
        noise: what the measurements scatter by and cost.
        count: of streams.
        seed: the same gives the same streams; the streams of one seed differ.
        candidates: of each stream.
    """
    for number in range(count):
        draws = random.Random(f"{seed} {kind} {number}")
        yield _stream(f"{kind} {number}", KINDS[kind], noise, draws, candidates)


def _stream(name: str, kind: Kind, noise: Noise, draws: random.Random, candidates: int) -> Truth:
    logs = kind.true_logs(draws, candidates)
    shift = draws.choice(noise.quick_shifts)
    tried = tuple(
        Tried(
            id=f"k{place}",
            parent=None if parent is None else f"k{parent}",
            outcomes=_measured(log, shift, kind, noise, draws),
        )
        for place, (log, parent) in enumerate(logs)
    )
    return Truth(stream=name, task="simulated", device=f"simulated from {noise.source}", tried=tried)


def _measured(log: float, shift: float, kind: Kind, noise: Noise, draws: random.Random) -> tuple[Outcome, ...]:
    cost = draws.choice(noise.costs)
    build_failed, wrong = noise.build_failed_share, noise.wrong_share
    if kind.failing is not None:
        # As many of either sort: the recorded proportion may be of a book without failures.
        build_failed = 1 - math.sqrt(1 - kind.failing)
        wrong = build_failed
    if draws.random() < build_failed:
        return (Outcome(rung=Rung.compile, verdict=Verdict.build_failed, wall_s=cost.compile_wall_s),)
    built = Outcome(rung=Rung.compile, verdict=Verdict.built, wall_s=cost.compile_wall_s)
    if draws.random() < wrong:
        failure = draws.choice(noise.failures)
        return built, Outcome(
            rung=Rung.check, verdict=Verdict.wrong_values, device_s=failure.device_s, wall_s=failure.wall_s
        )
    checked = Outcome(rung=Rung.check, verdict=Verdict.correct, device_s=cost.check_s, wall_s=cost.check_wall_s)
    error = shift + draws.choice(noise.quick_errors) + draws.gauss(0.0, kind.more_error)
    return built, checked, *_timed(log, error, noise, draws, cost)


def _timed(log: float, error: float, noise: Noise, draws: random.Random, cost: Cost) -> tuple[Outcome, Outcome]:
    half = draws.choice(noise.precise_half_widths)
    precise = math.exp(log + draws.gauss(0.0, half / DEVIATIONS))
    quick_half = draws.choice(noise.quick_half_widths)
    quick = math.exp(log + error)  # a recorded error holds the scatter of both rungs already
    return (
        Outcome(
            rung=Rung.quick, verdict=_quick_verdict(quick, quick_half), ratio=quick, low=quick * (1 - quick_half),
            high=quick * (1 + quick_half), device_s=cost.quick_s, wall_s=cost.quick_wall_s,
        ),
        Outcome(
            rung=Rung.precise, verdict=_precise_verdict(precise, half), ratio=precise, low=precise * (1 - half),
            high=precise * (1 + half), device_s=cost.precise_s, wall_s=cost.precise_wall_s,
        ),
    )  # fmt: skip


def _quick_verdict(ratio: float, half: float) -> Verdict:
    if ratio * (1 + half) < 1.0:
        return Verdict.clearly_slower
    return Verdict.maybe_faster if ratio * (1 - half) > 1.0 else Verdict.undecided


def _precise_verdict(ratio: float, half: float) -> Verdict:
    """Without `ambiguous`: what it would be is not recorded, and it leads nowhere."""
    if ratio * (1 - half) > 1.0 + NOISE_FLOOR:
        return Verdict.faster
    return Verdict.slower if ratio * (1 + half) < 1.0 - NOISE_FLOOR else Verdict.same

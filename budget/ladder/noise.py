"""What measurements on a device scatter by and cost, read from recorded results. Pure; nothing is made up here."""

import math
import statistics
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from kernelgate.budget.ladder.model import Outcome, Tried, Truth
from kernelgate.budget.model import PASSING, Rung, as_tuple
from kernelgate.tasks.model import Frozen

LEAST_TIMED: Final = 5
"""Candidates timed by quick and precise, below which a book says too little of either."""


class Cost(Frozen):
    """What one candidate cost that passed every rung, in device and wall seconds."""

    check_s: float = Field(ge=0)
    quick_s: float = Field(ge=0)
    precise_s: float = Field(ge=0)
    compile_wall_s: float = Field(default=0.0, ge=0)
    check_wall_s: float = Field(default=0.0, ge=0)
    quick_wall_s: float = Field(default=0.0, ge=0)
    precise_wall_s: float = Field(default=0.0, ge=0)


class Failure(Frozen):
    """What a check cost that a candidate did not pass."""

    device_s: float = Field(ge=0)
    wall_s: float = Field(ge=0)


class Noise(Frozen):
    """Recorded readings that a simulation draws from, each with the same chance."""

    source: str
    """Where they were read, and what of it was assumed."""
    costs: Annotated[tuple[Cost, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    failures: Annotated[tuple[Failure, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    quick_half_widths: Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    """Half of quick's interval / its ratio."""
    precise_half_widths: Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    quick_errors: Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    """Logarithm of quick's ratio / precise's, less the median of the stream."""
    quick_shifts: Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    """Those medians: quick times fewer workloads, and all candidates of a stream may gain more or less on them."""
    build_failed_share: float = Field(ge=0, le=1)
    wrong_share: float = Field(ge=0, le=1)
    """Of those that build."""


class TooLittle(ValueError):
    """There is no noise to read: one sentence."""


def noise_of(truths: Iterable[Truth], source: str) -> Noise:
    """The noise of recorded streams.

    Raises:
        TooLittle: fewer than `LEAST_TIMED` candidates were timed by quick and precise.
    """
    found = list(truths)
    climbs = [_by_rung(tried) for truth in found for tried in truth.tried]
    timed = [each for each in climbs if _is_timed(each)]
    if len(timed) < LEAST_TIMED:
        raise TooLittle(
            f"{source} has {len(timed)} candidates timed by quick and precise; at least {LEAST_TIMED} are needed"
            " to read its noise"
        )
    built = [each for each in climbs if each[Rung.compile].verdict in PASSING[Rung.compile]]
    checked = [each[Rung.check] for each in built if Rung.check in each]
    failed = [each for each in checked if each.verdict not in PASSING[Rung.check]]
    errors = [each for each in map(_errors, found) if each]
    # Where none failed, nothing is drawn from it: the share of the wrong is nought then.
    failures = [Failure(device_s=each.device_s, wall_s=each.wall_s) for each in failed or checked]
    return Noise(
        source=source,
        costs=tuple(map(_cost, timed)),
        failures=tuple(failures),
        quick_half_widths=tuple(_half_width(each[Rung.quick]) for each in timed),
        precise_half_widths=tuple(_half_width(each[Rung.precise]) for each in timed),
        quick_errors=tuple(error - statistics.median(each) for each in errors for error in each),
        quick_shifts=tuple(map(statistics.median, errors)),
        build_failed_share=1 - len(built) / len(climbs),
        wrong_share=len(failed) / len(checked),
    )


def _by_rung(tried: Tried) -> dict[Rung, Outcome]:
    return {outcome.rung: outcome for outcome in tried.outcomes}


def _is_timed(outcomes: dict[Rung, Outcome]) -> bool:
    return all(
        rung in outcomes and outcomes[rung].verdict in PASSING[rung] and outcomes[rung].ratio
        for rung in (Rung.quick, Rung.precise)
    )


def _cost(outcomes: dict[Rung, Outcome]) -> Cost:
    return Cost(
        check_s=outcomes[Rung.check].device_s,
        quick_s=outcomes[Rung.quick].device_s,
        precise_s=outcomes[Rung.precise].device_s,
        compile_wall_s=outcomes[Rung.compile].wall_s,
        check_wall_s=outcomes[Rung.check].wall_s,
        quick_wall_s=outcomes[Rung.quick].wall_s,
        precise_wall_s=outcomes[Rung.precise].wall_s,
    )


def _half_width(outcome: Outcome) -> float:
    ratio, low, high = outcome.ratio or 1.0, outcome.low or 0.0, outcome.high or 0.0
    return (high - low) / 2 / ratio


def _errors(truth: Truth) -> list[float]:
    timed = [each for each in map(_by_rung, truth.tried) if _is_timed(each)]
    ratios = [(each[Rung.quick].ratio or 1.0, each[Rung.precise].ratio or 1.0) for each in timed]
    return [math.log(quick / precise) for quick, precise in ratios]

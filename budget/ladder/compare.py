"""What a rule saved and lost against the flat pass, stream by stream and over all streams. Pure."""

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Final

from pydantic import BeforeValidator

from kernelgate.budget.ladder.model import Outcome, Played, Truth
from kernelgate.budget.model import LADDER, PASSING, Rung, Scored, Verdict, as_tuple
from kernelgate.budget.promotion import order_of
from kernelgate.tasks.model import Frozen

CLOSE: Final = 1.01
"""Within 1 % of the best: what peers call noise, and twice the noise floor of `precise`."""
ROUNDING_PCT: Final = 1e-9
RESAMPLES: Final = 2_000
"""Percentiles of 2.5 and 97.5 then rest on 50 resamples each."""
SEED: Final = 20_260_901
"""Fixed, so that the same book gives the same interval."""
CONFIDENCE: Final = 0.95


class Compared(Frozen):
    """One rule on one stream, beside the flat pass over it."""

    stream: str
    rule: str
    parameters: dict[str, float]
    live: bool
    partial: bool
    candidates: int
    correct: int
    """Timed precisely by the flat pass with a result that may lead."""
    calls: dict[str, int]
    device_s: dict[str, float]
    device_s_total: float
    flat_device_s_total: float
    gpu_s_ratio_flat: float | None
    """Device seconds of the flat pass / those of the rule: above 1 the rule saved. None where it spent nothing, and
    where one of the two met candidates that the other did not: what was not played is no saving."""
    wall_s: float
    flat_wall_s: float
    best: str | None
    best_ratio: float | None
    """Of the rule's best, in the truth."""
    flat_best: str | None
    flat_best_ratio: float | None
    regret_pct: float | None
    """How much longer the rule's best takes than that of the truth; against the baseline where it found none. None
    where no candidate was correct: there is nothing to regret; and where the truth did not time the rule's best, as a
    flat pass that ended early may not have: nothing is known of it."""
    false_drops: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    """Refused to the end, though the truth's interval lies wholly above that of the rule's best (as for `regret_pct`,
    1.0 where it found none, and nothing where the truth did not time its best)."""
    false_drops_1pct: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    """Of them those that the truth has more than 1 % ahead of the rule's best."""
    false_promotions: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    """Admitted, though the truth's interval lies wholly below that of the incumbent of that moment."""
    close_device_s: float | None
    """Spent until the best so far was within 1 % of the truth's best; None where it never was."""
    close_wall_s: float | None


class Interval(Frozen):
    """A figure over streams, with a bootstrap percentile interval (95 %) over resampled streams."""

    value: float
    low: float
    high: float


class Total(Frozen):
    """One rule over several streams."""

    rule: str
    parameters: dict[str, float]
    streams: int
    """With their own names; several orders of one stream are resampled together."""
    plays: int
    partial: int
    without_regret: int
    """In which no candidate was correct, or the truth did not time the rule's best."""
    device_s: float
    flat_device_s: float
    gpu_s_ratio_flat: Interval | None
    """Of the sums."""
    wall_s_ratio_flat: Interval | None
    regret_pct_mean: Interval | None
    regret_pct_max: float | None
    false_drops: int
    false_drops_1pct: int
    false_drops_mean: Interval
    """A play."""
    false_promotions: int
    close_share: float | None
    """Of the plays with something to regret, those that regret at most 1 %."""


def compare(truth: Truth, played: Played) -> Compared:
    """What a rule made of a stream, judged by the truth about it.

    Raises:
        ValueError: it was played on another stream, or on candidates that the truth does not have.
    """
    if played.stream != truth.stream:
        raise ValueError(f"{played.rule} was played on {played.stream!r}, and the truth is of {truth.stream!r}")
    known = _standings(truth)
    unknown = {*played.admitted, *played.refused} - {tried.id for tried in truth.tried}
    if unknown:
        raise ValueError(f"the truth about {truth.stream!r} lacks {sorted(unknown)[0]!r}, which {played.rule} met")
    flat_best = min(
        (each for each in known.items() if _leads(each[1])), key=lambda each: order_of(each[1]), default=None
    )
    own = known.get(played.best) if played.best else None
    unknown_best = played.best is not None and own is None
    drops = [] if unknown_best else _false_drops(played, known, own)
    reached = _within_reach(played, flat_best)
    device_s_total, flat_device_s = sum(played.device_s.values()), _sum(truth, lambda outcome: outcome.device_s)
    # A replay goes as far as the truth does; a live pass may have gone further, or ended before.
    alike = not played.ended and (truth.complete or not played.live)
    return Compared(
        stream=truth.stream,
        rule=played.rule,
        parameters=played.parameters,
        live=played.live,
        partial=played.partial or not truth.complete,
        candidates=len(truth.tried),
        correct=sum(map(_leads, known.values())),
        calls=played.calls,
        device_s=played.device_s,
        device_s_total=round(device_s_total, 9),
        flat_device_s_total=round(flat_device_s, 9),
        gpu_s_ratio_flat=flat_device_s / device_s_total if alike and device_s_total > 0 else None,
        wall_s=played.wall_s,
        flat_wall_s=round(_sum(truth, lambda outcome: outcome.wall_s), 9),
        best=played.best,
        best_ratio=own.ratio if own else None,
        flat_best=flat_best[0] if flat_best else None,
        flat_best_ratio=flat_best[1].ratio if flat_best else None,
        regret_pct=None if unknown_best else _regret_pct(flat_best[1] if flat_best else None, own),
        false_drops=tuple(drops),
        false_drops_1pct=tuple(each for each in drops if known[each].ratio > CLOSE * (own.ratio if own else 1.0)),
        false_promotions=_false_promotions(played, known),
        close_device_s=reached[0] if reached else None,
        close_wall_s=reached[1] if reached else None,
    )


def total(compared: Iterable[Compared], resamples: int = RESAMPLES, seed: int = SEED) -> Total:
    """One rule over several streams: sums, and bootstrap intervals over resampled streams.

    Raises:
        ValueError: there is nothing to sum up, or it is of several rules or parameters.
    """
    rows = list(compared)
    if len({(row.rule, tuple(sorted(row.parameters.items()))) for row in rows}) != 1:
        raise ValueError("a total is of one rule with one set of parameters")
    by_stream: dict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        by_stream[row.stream].append(row)
    groups = list(by_stream.values())
    regrets = [row.regret_pct for row in rows if row.regret_pct is not None]
    close = [regret <= (CLOSE - 1.0) * 100 + ROUNDING_PCT for regret in regrets]
    drops = _interval(groups, lambda row: (len(row.false_drops), 1.0), resamples, seed)
    assert drops is not None  # each play counts as one
    return Total(
        rule=rows[0].rule,
        parameters=rows[0].parameters,
        streams=len(groups),
        plays=len(rows),
        partial=sum(row.partial for row in rows),
        without_regret=len(rows) - len(regrets),
        device_s=round(sum(row.device_s_total for row in rows), 9),
        flat_device_s=round(sum(row.flat_device_s_total for row in rows), 9),
        gpu_s_ratio_flat=_interval(
            groups, lambda row: _if_alike(row, row.flat_device_s_total, row.device_s_total), resamples, seed
        ),
        wall_s_ratio_flat=_interval(groups, lambda row: _if_alike(row, row.flat_wall_s, row.wall_s), resamples, seed),
        regret_pct_mean=_interval(groups, _regret_and_one, resamples, seed),
        regret_pct_max=max(regrets, default=None),
        false_drops=sum(len(row.false_drops) for row in rows),
        false_drops_1pct=sum(len(row.false_drops_1pct) for row in rows),
        false_drops_mean=drops,
        false_promotions=sum(len(row.false_promotions) for row in rows),
        close_share=statistics.fmean(close) if close else None,
    )


def _if_alike(row: Compared, flat: float, rule: float) -> tuple[float, float]:
    """Both amounts, or nothing where they are not of the same candidates."""
    return (flat, rule) if row.gpu_s_ratio_flat is not None else (0.0, 0.0)


def _sum(truth: Truth, cost: Callable[[Outcome], float]) -> float:
    return sum(cost(outcome) for tried in truth.tried for outcome in tried.outcomes if outcome.rung in LADDER)


def _standings(truth: Truth) -> dict[str, Scored]:
    """What the flat pass measured precisely, by the stream's ids."""
    found: dict[str, Scored] = {}
    for number, tried in enumerate(truth.tried, 1):
        for outcome in tried.outcomes:
            ratio, low, high = outcome.ratio, outcome.low, outcome.high
            if outcome.rung is not Rung.precise or outcome.verdict not in PASSING[Rung.precise]:
                continue
            if ratio is not None and low is not None and high is not None:
                found[tried.id] = Scored(
                    candidate_id=f"c{number}", ratio=ratio, low=low, high=high, verdict=outcome.verdict,
                    device_s=outcome.device_s, seq=number,
                )  # fmt: skip
    return found


def _leads(scored: Scored) -> bool:
    """Whether a result may be an incumbent's."""
    return scored.verdict is not Verdict.ambiguous


def _regret_pct(flat_best: Scored | None, own: Scored | None) -> float | None:
    if flat_best is None:
        return None
    if own is None:
        return max(0.0, (flat_best.ratio - 1.0) * 100)  # the baseline is in hand
    return (flat_best.ratio / own.ratio - 1.0) * 100


def _false_drops(played: Played, known: Mapping[str, Scored], own: Scored | None) -> list[str]:
    bar = own.high if own else 1.0
    return [each for each in played.refused if each in known and _leads(known[each]) and known[each].low > bar]


def _false_promotions(played: Played, known: Mapping[str, Scored]) -> tuple[str, ...]:
    found: list[str] = []
    incumbent: Scored | None = None
    for each in played.admitted:
        own = known.get(each)
        if own is None:
            continue
        if incumbent is not None and own.high < incumbent.low:
            found.append(each)
        if _leads(own) and (incumbent is None or order_of(own) < order_of(incumbent)):
            incumbent = own
    return tuple(found)


def _within_reach(played: Played, flat_best: tuple[str, Scored] | None) -> tuple[float, float] | None:
    if flat_best is None:
        return None
    for point in played.curve:
        if point.ratio * CLOSE >= flat_best[1].ratio:
            return point.device_s, point.wall_s
    return None


def _regret_and_one(row: Compared) -> tuple[float, float]:
    return (0.0, 0.0) if row.regret_pct is None else (row.regret_pct, 1.0)


def _interval(
    groups: Sequence[Sequence[Compared]], part: Callable[[Compared], tuple[float, float]], resamples: int, seed: int
) -> Interval | None:
    """The quotient of two sums over streams, and where it lies when the streams are drawn again; None over nothing."""
    parts = [tuple(map(sum, zip(*map(part, group), strict=True))) for group in groups]
    value = _quotient(parts)
    if value is None:
        return None
    draws = random.Random(seed)
    found = sorted(
        each for each in (_quotient(draws.choices(parts, k=len(parts))) for _ in range(resamples)) if each is not None
    )
    tail = (1.0 - CONFIDENCE) / 2
    last = len(found) - 1
    return (
        Interval(value=value, low=found[round(tail * last)], high=found[round((1.0 - tail) * last)]) if found else None
    )


def _quotient(parts: Sequence[tuple[float, ...]]) -> float | None:
    above, below = sum(part[0] for part in parts), sum(part[1] for part in parts)
    return above / below if below > 0 else None

"""Measures parameters of halving over simulated streams: docs/measurements/ladder_sweep.json.

Costs and scatter are those of an H200 (`bench_ladder_noise.py`); no device is used. What the streams assume stands in
`budget/ladder/simulate.py`; what was chosen, and why, in docs/decisions/0028-the-defaults-of-halving.md.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final, NamedTuple

from bench_ladder_noise import h200_noise
from measurement import write_measurement
from pydantic import JsonValue

from kernelgate.budget.earlier_rules import EARLIER
from kernelgate.budget.ladder.compare import Compared, Total, compare, total
from kernelgate.budget.ladder.model import Truth
from kernelgate.budget.ladder.noise import Noise
from kernelgate.budget.ladder.play import play
from kernelgate.budget.ladder.simulate import CANDIDATES, KINDS, simulate
from kernelgate.budget.model import Rung, Verdict
from kernelgate.budget.promotion import Rule
from kernelgate.budget.rules import find_rules

STREAMS: Final = 100
"""Of each kind, for each set of parameters."""
SEED: Final = 28
PROCESSES: Final = 2
RESAMPLES: Final = 200
"""For the intervals of what is not quoted."""
SIZES: Final = (5, 10, 100)
"""Other lengths of a stream, for the defaults alone."""
NEVER: Final = 100.0
"""As `wide_eta`: `eta` is the smaller one, so nothing is widened."""
CHEAP_QUICK: Final = 0.2
"""A quick that cost a fifth: what a faster one would bring."""
SWEPT: Final[tuple[Mapping[str, float], ...]] = (
    {},
    *({"eta": eta} for eta in (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0)),
    *({"bootstrap": count} for count in (2.0, 4.0, 8.0)),
    *({"overlap_limit": count} for count in (0.0, 1.0, 4.0, 8.0)),
    *({"wide_eta": eta} for eta in (1.0, 1.5, 3.0, NEVER)),
    *({"disorder_bound": share} for share in (0.1, 0.15, 0.25, 0.3)),
    *({"disorder_pairs": count} for count in (3.0, 10.0, 20.0)),
    *({"eta": eta, "overlap_limit": 4.0} for eta in (6.0, 8.0)),
)
"""Changes to the defaults, one at a time and two together where they stand in for each other."""
OVERRIDES: Final = (1, 3)
"""Exploration purses that are spent at the end of the stream."""


class Swept(NamedTuple):
    """A rule over streams."""

    total: Total
    blind_drops: int
    """Of the false drops of more than 1 %, those that quick called clearly slower than the baseline."""


def swept(truths: Iterable[Truth], rule: Rule[Any], parameters: Mapping[str, float], overrides: int = 0) -> Swept:
    """Play a rule over streams."""
    rows: list[Compared] = []
    blind = 0
    for truth in truths:
        rows.append(compare(truth, play(truth, rule, parameters, overrides=overrides)))
        slow = {
            tried.id for tried in truth.tried if any(each.verdict is Verdict.clearly_slower for each in tried.outcomes)
        }
        blind += len(slow & set(rows[-1].false_drops_1pct))
    return Swept(total(rows, RESAMPLES), blind)


def ceiling(truths: Iterable[Truth]) -> float:
    """Device seconds of flat / those of a rule that lets nobody into precise: no rule at that door saves more."""
    outcomes = [outcome for truth in truths for tried in truth.tried for outcome in tried.outcomes]
    below_s = sum(outcome.device_s for outcome in outcomes if outcome.rung is not Rung.precise)
    return sum(outcome.device_s for outcome in outcomes) / below_s


def row(kind: str, played: Swept, **more: JsonValue) -> dict[str, JsonValue]:
    """One line of the raw readings."""
    found = played.total
    ratio, regret = found.gpu_s_ratio_flat, found.regret_pct_mean
    return {
        "kind": kind, "rule": found.rule, "parameters": dict(found.parameters), **more,
        "gpu_s_ratio_flat": ratio and [round(part, 4) for part in (ratio.value, ratio.low, ratio.high)],
        "regret_pct_mean": None if regret is None else round(regret.value, 4),
        "regret_pct_max": None if found.regret_pct_max is None else round(found.regret_pct_max, 4),
        "false_drops": found.false_drops, "false_drops_1pct": found.false_drops_1pct,
        "blind_drops_1pct": played.blind_drops, "false_promotions": found.false_promotions,
        "close_share": None if found.close_share is None else round(found.close_share, 4),
    }  # fmt: skip


def figures_of(kind: str, played: Swept) -> dict[str, int | float]:
    """What is quoted of the defaults."""
    found = played.total
    assert found.gpu_s_ratio_flat is not None
    assert found.regret_pct_mean is not None
    return {
        f"halving_gpu_s_ratio_flat_{kind}": round(found.gpu_s_ratio_flat.value, 3),
        f"halving_regret_pct_mean_{kind}": round(found.regret_pct_mean.value, 4),
        f"halving_regret_pct_max_{kind}": round(found.regret_pct_max or 0.0, 4),
        f"halving_false_drops_1pct_{kind}": found.false_drops_1pct,
        f"halving_blind_drops_1pct_{kind}": played.blind_drops,
    }


def cheaper(noise: Noise) -> Noise:
    """The same with a quick at a share of its cost."""
    costs = tuple(cost.model_copy(update={"quick_s": CHEAP_QUICK * cost.quick_s}) for cost in noise.costs)
    return noise.model_copy(update={"costs": costs})


def of_kind(kind: str) -> tuple[dict[str, int | float], list[dict[str, JsonValue]]]:
    """Figures and readings of one kind of stream."""
    rule, first, noise = find_rules()["halving"], EARLIER["halving", 1], h200_noise()
    truths = list(simulate(kind, noise, STREAMS, SEED))
    figures: dict[str, int | float] = {f"ceiling_gpu_s_ratio_flat_{kind}": round(ceiling(truths), 3)}
    rows: list[dict[str, JsonValue]] = []
    for change in SWEPT:
        found = swept(truths, rule, change)
        rows.append(row(kind, found, version=rule.version, changed=dict(change)))
        if not change:
            figures |= figures_of(kind, found)
    rows += [row(kind, swept(truths, first, {"eta": eta}), version=1, changed={"eta": eta}) for eta in (3.0, 4.0, 6.0)]
    for count in OVERRIDES:
        rows.append(row(kind, swept(truths, rule, {}, count), version=rule.version, overrides=count))
    for size in SIZES:
        of_size = list(simulate(kind, noise, STREAMS, SEED, size))
        for count in (0, 1):
            found = swept(of_size, rule, {}, count)
            rows.append(row(kind, found, version=rule.version, candidates=size, overrides=count))
    level = noise.model_copy(update={"quick_shifts": (0.0,)})
    found = swept(simulate(kind, level, STREAMS, SEED), rule, {})
    rows.append(row(kind, found, version=rule.version, quick_shifts="none"))
    cheap = list(simulate(kind, cheaper(noise), STREAMS, SEED))
    rows.append(row(kind, swept(cheap, rule, {}), version=rule.version, quick_cost_share=CHEAP_QUICK))
    figures[f"ceiling_gpu_s_ratio_flat_cheap_quick_{kind}"] = round(ceiling(cheap), 3)
    return figures, rows


def main() -> None:
    figures: dict[str, int | float] = {"streams_of_each_kind": STREAMS, "candidates": CANDIDATES}
    raw: list[JsonValue] = []
    with ProcessPoolExecutor(PROCESSES) as pool:
        for found, rows in pool.map(of_kind, KINDS):
            figures |= found
            raw.extend(rows)
    write_measurement("ladder_sweep", figures, {"noise": h200_noise().model_dump(mode="json"), "rows": raw})


if __name__ == "__main__":
    main()

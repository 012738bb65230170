"""Figures of docs/measurements/ladder.json, from what `ladder_run.py` wrote in one call or several."""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import gpu_path as gpu_path  # before the package
from ladder_rows import RESAMPLES, TAIL, extrapolated
from measurement import MeasuredHost, MeasurementFile
from write_figures import without_places

from kernelgate.budget.ladder.compare import Compared, Interval, total

COMMAND: Final = (
    "python tests/gpu/ladder_run.py OUT.json --streams NAME --kernelbench CHECKOUT --data DIR --write, each stream in "
    "a call of its own or several in one"
)
WAYS: Final = ("kernelbench", "do_bench")
KEPT: Final = ("stream", "task", "candidates", "device", "unit", "order", "warm_up", "truth", "played", "compared",
               "why_partial", "notes")  # fmt: skip
"""Of a stream's report; its calls stand in the truth again."""


def slim(told: Mapping[str, Any]) -> dict[str, Any]:
    """What the measurement keeps of a stream."""
    kept = {name: told[name] for name in ("date_utc", "host", "correct", "rows") if name in told}
    return kept | {"report": {name: told["report"][name] for name in KEPT}}


def merged(earlier: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The streams of both; a new one takes the place of an earlier one, unless it alone is partial."""
    found = dict(earlier)
    for name, told in new.items():
        if "report" not in told:
            continue
        partial = told["report"]["why_partial"] and name in found and not found[name]["report"]["why_partial"]
        if not partial:
            found[name] = told
    return found


def figures(streams: Mapping[str, Any]) -> dict[str, int | float]:
    """Flat names, a rule's name first (`_replayed` where it was not run) → numbers; `_low`, `_high`: 95 % intervals."""
    rows = [(name, row) for name, told in streams.items() for row in _rows(told)]
    counted: dict[str, int | float] = {
        "streams": len(streams),
        "streams_partial": sum(bool(told["report"]["why_partial"]) for told in streams.values()),
    }  # fmt: skip
    for rule, live in dict.fromkeys((row.rule, row.live) for _, row in rows):
        own = {name: row for name, row in rows if (row.rule, row.live) == (rule, live)}
        who = rule if live else f"{rule}_replayed"
        counted |= _of_rule(who, list(own.values()))
        if live:
            to_its_end = {name: row for name, row in own.items() if row.gpu_s_ratio_flat is not None}
            for way in WAYS:
                counted |= _walls(f"{who}_wall_ratio_{way}", to_its_end, streams, way)
        counted |= {
            f"{who}_gpu_s_ratio_flat_{name}": row.gpu_s_ratio_flat
            for name, row in own.items()
            if row.gpu_s_ratio_flat is not None and rule != "flat"
        }
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in counted.items()}


def _rows(told: Mapping[str, Any]) -> Iterable[Compared]:
    return [Compared.model_validate(row, strict=False) for row in told["report"]["compared"]]


def _of_rule(who: str, rows: list[Compared]) -> dict[str, int | float]:
    whole = total(rows)
    found: dict[str, int | float] = {f"{who}_gpu_s": whole.device_s, f"{who}_wall_s": sum(row.wall_s for row in rows)}
    if who != "flat":
        found |= _spread(f"{who}_gpu_s_ratio_flat", whole.gpu_s_ratio_flat)
        found |= _spread(f"{who}_wall_ratio_flat", whole.wall_s_ratio_flat)
        found |= {f"{who}_false_drops": whole.false_drops, f"{who}_false_drops_over_1pct": whole.false_drops_1pct}
        found |= {f"{who}_false_promotions": whole.false_promotions}
    if whole.regret_pct_max is not None:
        found[f"{who}_regret_pct_max"] = whole.regret_pct_max
    return found


def _spread(name: str, interval: Interval | None) -> dict[str, float]:
    if interval is None:
        return {}
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _walls(name: str, own: Mapping[str, Compared], streams: Mapping[str, Any], way: str) -> dict[str, float]:
    """How much longer the other way takes for the correct candidates alone than the rule for the whole streams."""
    taken = {each: seconds for each in own if (seconds := walls_of(streams[each], way))}
    ours_s = sum(own[each].wall_s for each in taken)
    if not taken or ours_s <= 0:
        return {}
    theirs_s = sum(extrapolated(seconds, streams[each]["correct"])["value"] for each, seconds in taken.items())
    draws = random.Random(0)
    found = sorted(
        sum(
            streams[each]["correct"] * sum(draws.choices(seconds, k=len(seconds))) / len(seconds)
            for each, seconds in taken.items()
        )
        / ours_s
        for _ in range(RESAMPLES)
    )
    low, high = found[round(TAIL * (len(found) - 1))], found[round((1 - TAIL) * (len(found) - 1))]
    return {name: theirs_s / ours_s, f"{name}_low": low, f"{name}_high": high}


def walls_of(told: Mapping[str, Any], way: str) -> list[float]:
    """Seconds of each candidate that came to a result one way; one that failed there is no measure of it."""
    return [row["wall_s"] for row in told.get("rows", {}).get(way, {}).values() if "error" not in row]


def write(name: str, streams: Mapping[str, Any], folder: Path) -> Path:
    """Write the measurement of all streams; its host is that of the newest, each stream has its own beside it."""
    kept = {each: slim(told) for each, told in streams.items() if "report" in told}
    if not kept:
        raise SystemExit("No stream came to a report: there is nothing to write.")
    newest = max(kept.values(), key=lambda told: told["date_utc"])
    measured = MeasurementFile(
        name=name, date_utc=newest["date_utc"], command=COMMAND, host=MeasuredHost(**newest["host"]),
        figures=figures(kept), raw=without_places({"streams": kept}),
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(measured.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return path

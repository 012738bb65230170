"""Tables of a ladder comparison: a line a stream and rule, and what it comes to over streams.

A saving is how many times as much flat spent.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kernelgate.budget.ladder.compare import Compared, Interval, Total
from kernelgate.server.tables import Listing


def compared_table(rows: Iterable[Compared], orders: int = 0) -> Listing:
    """What each rule made of each stream; over several orders the medians, and from where to where 90 % of them lie."""
    groups: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    for row in rows:
        groups[row.stream, row.rule].append(row)
    columns = (
        "stream", "rule", "candidates", "correct", "timed precisely", "device s", "saving", "best", "regret %",
        "false drops", "> 1 %", "false promotions", "s to 1 %", "",
    )  # fmt: skip
    title = "Rules on each stream"
    if orders:
        title += f" ({orders} orders of each: median, and 5 to 95 %; false drops and promotions on average)"
    return Listing(title, columns, tuple(map(_line, groups.values())))


def _line(rows: Sequence[Compared]) -> tuple[str, ...]:
    first = rows[0]
    best = {row.best for row in rows}
    return (
        first.stream,
        first.rule,
        str(first.candidates),
        str(first.correct),
        _over([row.calls["precise"] for row in rows], ".0f"),
        _over([row.device_s_total for row in rows], ".3f"),
        _over([row.gpu_s_ratio_flat for row in rows], ".2f"),
        "" if len(best) > 1 else next(iter(best)) or "none",
        _over([row.regret_pct for row in rows], ".2f"),
        _mean([len(row.false_drops) for row in rows]),
        _mean([len(row.false_drops_1pct) for row in rows]),
        _mean([len(row.false_promotions) for row in rows]),
        _over([row.close_device_s for row in rows], ".3f"),
        "partial" if any(row.partial for row in rows) else "",
    )


def totals_table(totals: Iterable[tuple[str, Total]]) -> Listing:
    """Each rule over all streams; behind a figure its interval of 95 % over resampled streams."""
    columns = (
        "", "rule", "streams", "plays", "device s", "saving", "wall saving", "mean regret %", "most regret %",
        "false drops", "> 1 %", "false promotions", "within 1 %",
    )  # fmt: skip

    def line(name: str, row: Total) -> tuple[str, ...]:
        return (
            name or "recorded",
            row.rule,
            str(row.streams),
            str(row.plays),
            f"{row.device_s:.3f}",
            _interval(row.gpu_s_ratio_flat),
            _interval(row.wall_s_ratio_flat),
            _interval(row.regret_pct_mean) or "nothing correct",
            "" if row.regret_pct_max is None else f"{row.regret_pct_max:.2f}",
            str(row.false_drops),
            str(row.false_drops_1pct),
            str(row.false_promotions),
            "" if row.close_share is None else f"{row.close_share:.0%}",
        )

    return Listing("Over all streams (95 % intervals)", columns, tuple(line(name, row) for name, row in totals))


def _interval(found: Interval | None) -> str:
    return "" if found is None else f"{found.value:.2f} ({found.low:.2f}-{found.high:.2f})"


def _over(values: Sequence[float | None], form: str) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "none"
    if len(values) == 1:
        return format(known[0], form)
    low, high = (known[round(share * (len(known) - 1))] for share in (0.05, 0.95))
    return f"{statistics.median(known):{form}} ({low:{form}}-{high:{form}})"


def _mean(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{statistics.fmean(counts):.2f}"

"""What `kernelgate bench ladder` prints: rules beside flat, and plainly where one of them lost."""

from collections.abc import Iterable
from typing import Final

from kernelgate.budget.ladder.compare import Compared, Interval
from kernelgate.budget.model import LADDER
from kernelgate.server.bench.live import FLAT
from kernelgate.server.bench.report import LadderReport, StreamReport, named
from kernelgate.server.tables import Listing

RUNGS: Final = tuple(str(rung) for rung in LADDER)


def _rule(rule: str, *, live: bool) -> str:
    return "flat, the truth" if rule == FLAT else named(rule, live=live)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} %"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _between(interval: Interval | None, form: str = "{:.2f}x") -> str:
    if interval is None:
        return ""
    return f"{form.format(interval.value)} [{form.format(interval.low)}, {form.format(interval.high)}]"


def stream_table(report: StreamReport) -> Listing:
    """One stream, a line a rule."""

    def line(row: Compared) -> tuple[str, ...]:
        best = "" if row.best is None else f"{row.best} {_times(row.best_ratio)}".strip()
        close = "" if row.close_device_s is None else f"{row.close_device_s:.2f}"
        return (
            _rule(row.rule, live=row.live), f"{row.device_s_total:.2f}",
            *(f"{row.device_s[rung]:.2f}" for rung in RUNGS), _times(row.gpu_s_ratio_flat), f"{row.wall_s:.1f}",
            str(sum(row.calls.values())), best, _percent(row.regret_pct), str(len(row.false_drops)),
            str(len(row.false_promotions)), close, "partial" if row.partial else "",
        )  # fmt: skip

    columns = (
        "rule", report.unit or "device s", *RUNGS, "saving", "wall s", "calls", "best", "regret", "false drops",
        "false promotions", "s to 1 %", "state",
    )  # fmt: skip
    title = f"{report.stream}: {report.candidates} candidates of {report.task}, {' before '.join(report.order)}"
    return Listing(title, columns, tuple(map(line, report.compared)))


def totals_table(report: LadderReport) -> Listing:
    """All streams, a line a rule; intervals are of the bootstrap over streams, 95 %."""
    columns = ("rule", "streams", "device s", "saving", "wall saving", "mean regret", "most", "false drops", "over 1 %",
               "false promotions", "state")  # fmt: skip
    rows = tuple(
        (
            _rule(each.total.rule, live=each.live), str(each.total.streams), f"{each.total.device_s:.2f}",
            _between(each.total.gpu_s_ratio_flat), _between(each.total.wall_s_ratio_flat),
            _between(each.total.regret_pct_mean, "{:.2f} %"), _percent(each.total.regret_pct_max),
            str(each.total.false_drops), str(each.total.false_drops_1pct), str(each.total.false_promotions),
            f"{each.total.partial} partial" if each.total.partial else "",
        )
        for each in report.totals
    )  # fmt: skip
    return Listing("All streams (saving: flat / rule, with 95 % intervals over streams)", columns, rows)


def closing(report: LadderReport) -> Iterable[str]:
    """Where the rules lost, or that none did."""
    if not report.losses:
        judged = any(each.total.rule != FLAT for each in report.totals)
        yield "No rule spent more than flat or found less." if judged else "Nothing could be compared with flat."
        return
    yield "Where the ladder lost:"
    yield from (f"- {sentence}." for sentence in report.losses)

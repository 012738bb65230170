"""What `kernelgate bench ladder` prints: rules beside flat, and plainly where one of them lost."""

from collections.abc import Iterable
from typing import Final

from kernelgate.budget.ladder.compare import Compared
from kernelgate.budget.ladder.model import FLAT
from kernelgate.budget.model import LADDER
from kernelgate.server.bench.replay_tables import totals_table
from kernelgate.server.bench.report import LadderReport, StreamReport, named
from kernelgate.server.tables import Listing

RUNGS: Final = tuple(str(rung) for rung in LADDER)


def _rule(rule: str, *, live: bool) -> str:
    return "flat, the truth" if rule == FLAT else named(rule, live=live)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} %"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


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


def all_streams_table(report: LadderReport) -> Listing:
    """All streams, a line a rule, live and replayed ones apart."""
    return totals_table(("live" if each.live else "replayed", each.total) for each in report.totals)


def closing(report: LadderReport) -> Iterable[str]:
    """Where the rules lost, or that none did."""
    if not report.losses:
        if not any(row.best for each in report.streams for row in each.compared):
            yield "Nothing could be compared with flat: no best candidate was found."
            return
        judged = any(each.total.rule != FLAT for each in report.totals)
        far = ", as far as it was played" if report.partial else ""
        yield f"No rule spent more than flat or found less{far}." if judged else "Nothing could be compared with flat."
        return
    yield "Where the ladder lost:"
    yield from (f"- {sentence}." for sentence in report.losses)

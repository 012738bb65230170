"""Tables for people: leaderboard, funnel, runs, tasks, and the sentence about what the ladder saved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from kernelgate.budget.errors import one_line
from kernelgate.budget.model import LOCAL
from kernelgate.budget.records import RunRecord
from kernelgate.budget.report import FunnelRow, LeaderboardRow, Savings
from kernelgate.tasks.catalogue import TaskEntry
from kernelgate.tools.kit.book import CandidateRow

PROSE: Final = frozenset({"idea", "title", "state", "client", "verdict", "speed-up"})
"""Columns that wrap between words; names, ids and times stay on one line."""
LONGEST_WORD: Final = 24
"""A word of prose that is longer may be broken: some are addresses or code."""
GAP: Final = 2
"""Blanks between columns."""


@dataclass(frozen=True)
class Listing:
    """A titled table. Where its words need more room than the console has, its lines are longer than the console."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title, and the table in the width that there is."""
        rows = [tuple(map(one_line, row)) for row in self.rows]
        cells = [tuple(column) for column in zip(self.columns, *rows, strict=True)]
        widths = _widths(cells, options.max_width)
        whole = sum(widths) + GAP * (len(widths) - 1)
        table = Table(box=SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False, width=whole)
        for column, width in zip(self.columns, widths, strict=True):
            table.add_column(Text(column), width=width, overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        yield Text(self.title, "bold")
        yield table
        yield Text()


def _cut(note: str, most: int) -> str:
    """A note that is too long, up to a whole word."""
    if len(note) <= most:
        return note
    whole, _, _ = note[:most].rpartition(" ")
    return f"{whole or note[:most]} …"


def _widths(cells: Sequence[Sequence[str]], whole: int) -> list[int]:
    """Of each column (its head first): what its words need, and to prose what is left, first come first served."""
    widths = [_least(column) for column in cells]
    spare = whole - sum(widths) - GAP * (len(widths) - 1)
    for index, column in enumerate(cells):
        taken = max(0, min(max(map(cell_len, column)) - widths[index], spare))
        widths[index] += taken
        spare -= taken
    return widths


def _least(column: Sequence[str]) -> int:
    if column[0] not in PROSE:
        return max(map(cell_len, column))
    words = [cell_len(word) for cell in column for word in cell.split()]
    return min(LONGEST_WORD, max(words))


def leaderboard_table(rows: Iterable[LeaderboardRow], names: Mapping[str, str] | None = None) -> Listing:
    """The timed candidates, best first. A ratio above 1 is faster than the baseline."""

    def line(row: LeaderboardRow) -> tuple[str, ...]:
        verdict = (row.precise_verdict or row.quick_verdict or "") + (
            " at precise" if row.precise_verdict and row.precise_ratio is None else ""
        )
        ratio, low, high = (
            (row.precise_ratio, row.precise_low, row.precise_high)
            if row.precise_ratio is not None
            else (row.quick_ratio, row.quick_low, row.quick_high)
        )
        speed = "" if ratio is None else f"{ratio:.2f}x"
        interval = "" if low is None or high is None else f"{low:.2f}-{high:.2f}"
        rung = "precise" if row.precise_ratio is not None else "quick"
        named = (names or {}).get(row.candidate_id) or _cut(row.note, 60)
        return (str(row.place), row.candidate_id, speed, interval, rung, verdict, named)

    columns = ("#", "id", "speed-up", "interval", "rung", "verdict", "idea")
    return Listing("Leaderboard (baseline time / candidate time)", columns, tuple(map(line, rows)))


def candidates_table(rows: Iterable[CandidateRow]) -> Listing:
    """All candidates of a run, failed ones too."""
    columns = ("id", "parent", "furthest", "verdict", "speed-up", "seconds", "idea")
    return Listing(
        "Candidates",
        columns,
        tuple(
            (
                row.candidate_id,
                row.parent_id or "",
                row.furthest,
                row.verdict,
                "" if row.ratio is None else f"{row.ratio:.2f}x" + _from_below(row),
                f"{row.spent_s:.2f}",
                _cut(row.note, 40),
            )
            for row in rows
        ),
    )


def _from_below(row: CandidateRow) -> str:
    """Says where a ratio is from that the furthest rung did not give."""
    return "" if row.ratio_rung == row.furthest else f" ({row.ratio_rung})"


def funnel_table(rows: Iterable[FunnelRow]) -> Listing:
    """How many candidates entered and left each rung."""

    def line(row: FunnelRow) -> tuple[str, ...]:
        counts = (row.entered, row.passed, row.failed, row.refused, row.replays)
        return (row.rung.value, *(str(count) for count in counts), f"{row.device_s:.3f}")

    columns = ("rung", "entered", "passed", "failed", "refused", "from the book", "charged s")
    return Listing("Funnel (candidates per rung)", columns, tuple(map(line, rows)))


def savings_sentence(saved: Savings) -> str:
    """What the ladder saved, also where that is less than nothing."""
    unjudged = f" ({saved.unjudged_device_s:.3f} s of it without a verdict)" if saved.unjudged_device_s else ""
    if saved.saved_device_s is None or saved.precise_device_s_median is None:
        return (
            f"Spent {saved.spent_device_s:.3f} device seconds{unjudged}; "
            "nothing was timed precisely, so no saving can be told."
        )
    word = "saved" if saved.saved_device_s >= 0 else "lost"
    return (
        f"Against timing every correct candidate precisely the ladder {word} {abs(saved.saved_device_s):.3f} device "
        f"seconds: {saved.never_precise} candidates never needed the {saved.precise_device_s_median:.3f} s that a "
        f"precise timing cost (median), and the quick rung cost {saved.quick_device_s:.3f} s. "
        f"Spent in all: {saved.spent_device_s:.3f} s{unjudged}."
    )


def _run_line(run: RunRecord) -> tuple[str, ...]:
    created = run.created_utc[:16].replace("T", " ")
    return (run.run_id, run.task_name, run.rule, run.device_kind, run.client_name, created, run.closed or "open")


def runs_table(rows: Iterable[RunRecord]) -> Listing:
    """The runs of a book, newest first; whose they are where some are of accounts with tokens."""
    runs = tuple(rows)
    columns: tuple[str, ...] = ("run", "task", "rule", "on", "client", "created", "state")
    lines = list(map(_run_line, runs))
    if any(run.account_id != LOCAL for run in runs):
        columns = ("account", *columns)
        lines = [(run.account_id, *line) for run, line in zip(runs, lines, strict=True)]
    return Listing("Runs", columns, tuple(lines))


def tasks_table(entries: Iterable[TaskEntry]) -> Listing:
    """The catalogue."""
    return Listing(
        "Tasks", ("name", "group", "title"),
        tuple((e.name, e.group, f"unavailable: {e.unavailable}" if e.unavailable else e.title) for e in entries),
    )  # fmt: skip

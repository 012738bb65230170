"""Tables for people: leaderboard, funnel, runs, tasks, and the sentence about what the ladder saved."""

from collections.abc import Iterable, Mapping

from rich.table import Table

from kernelgate.budget.records import RunRecord
from kernelgate.budget.report import FunnelRow, LeaderboardRow, Savings
from kernelgate.tasks.catalogue import TaskEntry
from kernelgate.tools.kit.book import CandidateRow


def _table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def leaderboard_table(rows: Iterable[LeaderboardRow], names: Mapping[str, str] | None = None) -> Table:
    """The timed candidates, best first. A ratio above 1 is faster than the baseline."""

    def line(row: LeaderboardRow) -> tuple[str, ...]:
        verdict = row.precise_verdict or row.quick_verdict
        ratio, low, high = (
            (row.precise_ratio, row.precise_low, row.precise_high)
            if row.precise_ratio is not None
            else (row.quick_ratio, row.quick_low, row.quick_high)
        )
        speed = "" if ratio is None else f"{ratio:.2f}x"
        interval = "" if low is None or high is None else f"{low:.2f}-{high:.2f}"
        rung = "precise" if row.precise_ratio is not None else "quick"
        named = (names or {}).get(row.candidate_id) or row.note[:60]
        return (str(row.place), row.candidate_id, speed, interval, rung, verdict.value if verdict else "", named)

    columns = ("place", "candidate", "speed-up", "interval", "rung", "verdict", "idea")
    return _table("Leaderboard (baseline time / candidate time)", columns, map(line, rows))


def candidates_table(rows: Iterable[CandidateRow]) -> Table:
    """All candidates of a run, failed ones too."""
    columns = ("candidate", "parent", "furthest", "verdict", "speed-up", "seconds", "idea")
    return _table(
        "Candidates",
        columns,
        (
            (
                row.candidate_id,
                row.parent_id or "",
                row.furthest,
                row.verdict,
                "" if row.ratio is None else f"{row.ratio:.2f}x",
                f"{row.spent_s:.2f}",
                row.note[:40],
            )
            for row in rows
        ),
    )


def funnel_table(rows: Iterable[FunnelRow]) -> Table:
    """How many candidates entered and left each rung."""

    def line(row: FunnelRow) -> tuple[str, ...]:
        counts = (row.entered, row.passed, row.failed, row.refused, row.replays)
        return (row.rung.value, *(str(count) for count in counts), f"{row.device_s:.3f}")

    columns = ("rung", "entered", "passed", "failed", "refused", "from the book", "charged s")
    return _table("Funnel (candidates per rung)", columns, map(line, rows))


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


def runs_table(rows: Iterable[RunRecord]) -> Table:
    """The runs of a book, newest first."""
    columns = ("run", "task", "rule", "device", "client", "created", "state")
    return _table(
        "Runs",
        columns,
        (
            (r.run_id, r.task_name, r.rule, r.device_kind, r.client_name, r.created_utc[:19], r.closed or "open")
            for r in rows
        ),
    )


def tasks_table(entries: Iterable[TaskEntry]) -> Table:
    """The catalogue."""
    return _table(
        "Tasks", ("name", "group", "title"),
        ((e.name, e.group, e.title if not e.unavailable else f"unavailable: {e.unavailable}") for e in entries),
    )  # fmt: skip

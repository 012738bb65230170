"""What the house paid for what no agent was charged: seconds by cause, and whether there was time for them."""

import math
import sqlite3
from collections import defaultdict
from typing import Final, get_args

from kernelgate.budget.audit_rows import EventRow
from kernelgate.budget.model import ReleaseReason

ABOVE: Final = "above_the_hold"
"""Cause of what a settled call took above its hold: its settle says the same amount."""
_CAUSES: Final = get_args(ReleaseReason)
_SLACK_S: Final = 1.0
"""Server and worker read their clocks at other moments than those at which the rows are stamped."""
_BESIDE: Final = {
    "qualifying": "SELECT total(gpu_s) + total(cpu_s) FROM qualifications",
    "calibrating": "SELECT total(gpu_s) + total(cpu_s) FROM calibrations",
    "referee": "SELECT total(house_s) FROM results",
}
"""What is paid without an event of its own; the rows are bound by the digests of events."""
_STAMP: Final = "SELECT monotonic_s FROM events WHERE seq = ?"
_LATEST: Final = "SELECT max(monotonic_s) FROM events WHERE seq BETWEEN ? AND ?"


class HouseAudit:
    """Adds up the overruns, and compares those that nothing else in the book bounds with the time that went by."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._paid_s: defaultdict[str, float] = defaultdict(float)

    def paid_s(self) -> dict[str, float]:
        """Device seconds by cause, those that no event says among them."""
        beside = {cause: self._sum_s(query) for cause, query in _BESIDE.items()}
        paid_s = {**self._paid_s, **{cause: seconds for cause, seconds in beside.items() if seconds > 0}}
        return {cause: round(seconds, 9) for cause, seconds in sorted(paid_s.items())}

    def _sum_s(self, query: str) -> float:
        """0 where a table is gone or a cell is no amount: those are findings by themselves."""
        try:
            seconds = float(self._connection.execute(query).fetchone()[0])
        except sqlite3.Error:
            return 0.0
        return seconds if math.isfinite(seconds) else 0.0

    def wrong_at(self, overrun: EventRow) -> list[str]:
        """What is wrong with an overrun: behind a release it may be no longer than its hold was open."""
        used_s = overrun.gpu_s + overrun.cpu_s
        cause = overrun.reason.partition(":")[0]
        self._paid_s[cause if cause in _CAUSES else ABOVE] += used_s
        if cause not in _CAUSES or used_s <= _SLACK_S:
            return []
        open_s = self._open_s(overrun)
        if open_s is None or used_s <= open_s + _SLACK_S:
            return []
        return [
            f"The overrun {overrun.seq} says that {used_s:.3f} s of the device were used under hold "
            f"{overrun.hold_seq}, which was open for {open_s:.3f} s."
        ]

    def _open_s(self, overrun: EventRow) -> float | None:
        """How long a hold was open; None where nobody knows: the host was started anew meanwhile, and its clock too."""
        (ended_s,) = self._connection.execute(_STAMP, (overrun.seq,)).fetchone()
        began = self._connection.execute(_STAMP, (overrun.hold_seq,)).fetchone()
        (latest_s,) = self._connection.execute(_LATEST, (overrun.hold_seq, overrun.seq)).fetchone()
        return None if began is None or latest_s > ended_s else float(ended_s - began[0])

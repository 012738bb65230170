"""A process whose writes go wrong: it dies before or after one, or SQLite refuses it. And clocks that jump."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from kernelgate.budget.clock import utc_text
from kernelgate.budget.ledger import Ledger

How = Literal["dies_before", "dies_after", "full", "failing", "busy"]
WRITES = ("BEGIN", "INSERT", "UPDATE", "COMMIT")
REFUSED = {
    "full": (sqlite3.SQLITE_FULL, "database or disk is full"),
    "failing": (sqlite3.SQLITE_IOERR, "disk I/O error"),
    "busy": (sqlite3.SQLITE_BUSY, "database is locked"),
}
START = datetime(2026, 5, 9, tzinfo=UTC)


class Died(BaseException):
    """SIGKILL, as seen from inside: nothing of the process runs any more."""


@dataclass(frozen=True)
class Fault:
    """What happens at the so-manieth write from now on."""

    how: How
    at: int


def refusal(code: int, said: str) -> sqlite3.OperationalError:
    """An error as SQLite raises it."""
    error = sqlite3.OperationalError(said)
    error.sqlite_errorcode = code
    return error


class JumpyClock:
    """Wall clock that is set forwards and backwards; a monotonic one that begins anew after each boot."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        self.ticks = 0
        self.passed_s = 0.0
        """In which something was at work."""

    def utc(self) -> str:
        self.ticks += 1
        return utc_text(START + timedelta(seconds=self.offset_s + self.passed_s, milliseconds=self.ticks))

    def monotonic_s(self) -> float:
        return self.passed_s + self.ticks / 1e3


class FaultyConnection:
    """A connection on which one write goes wrong. A dead process sends nothing more, not even a rollback.

    `death`: what its code meets from then on; where that must run on to be cleared away, an error of SQLite's.
    """

    def __init__(self, real: sqlite3.Connection, death: Callable[[], BaseException] = Died) -> None:
        self.real = real
        self.death = death
        self.fault: Fault | None = None
        self.dead = False

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if self.dead:
            raise self.death()
        fault = self.fault
        if fault is None or not sql.lstrip().startswith(WRITES):
            return self.real.execute(sql, *values)
        self.fault = Fault(fault.how, fault.at - 1)
        if fault.at > 0 and not (fault.how == "busy" and sql.startswith("BEGIN")):
            return self.real.execute(sql, *values)
        if fault.how in REFUSED:
            raise refusal(*REFUSED[fault.how])
        if fault.how == "dies_after":
            self.real.execute(sql, *values)
        self.dead = True
        raise self.death()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    @property
    def in_transaction(self) -> bool:
        return not self.dead and self.real.in_transaction

    def close(self) -> None:
        """The kernel closes the files of a dead process: SQLite leaves what was not committed."""
        self.real.close()


class Process:
    """One process with the book open; after it died another one takes its place."""

    def __init__(self, path: Path, clock: JumpyClock) -> None:
        self.path = path
        self.clock = clock
        self.ledger = self._opened()

    def _opened(self) -> Ledger:
        ledger = Ledger.open(self.path, self.clock, busy_timeout_s=0.02)
        self.connection = FaultyConnection(ledger._connection)
        ledger._connection = self.connection
        return ledger

    def meet(self, fault: Fault | None) -> None:
        """From now on this goes wrong; None: all goes well again."""
        self.connection.fault = fault

    def restart(self) -> None:
        self.ledger.close()
        self.ledger = self._opened()

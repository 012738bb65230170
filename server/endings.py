"""Ends of holds and jobs that the book could not take, for lack of space or of its lock: kept, and written later."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio

from kernelgate.budget.errors import LedgerError
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import RunId
from kernelgate.server.ledger_thread import LedgerThread

log = logging.getLogger("kernelgate")

T = TypeVar("T")


@dataclass(frozen=True)
class Ending:
    """One write that is owed to the book."""

    run_id: RunId
    what: str
    write: Callable[[Ledger], object]


@dataclass(eq=False)
class Endings:
    """Writes ends at once, or keeps them in their order until the book takes them."""

    ledger: LedgerThread
    _owed: list[Ending] = field(default_factory=list[Ending])
    _one_at_a_time: anyio.Lock = field(default_factory=anyio.Lock)

    async def end_hold(self, run_id: RunId, what: str, write: Callable[[Ledger], T], *, later: str = "") -> T:
        """Settle or release a hold.

        Args:
            run_id: the run of the hold.
            what: for the log.
            write: the one call of the ledger.
            later: added to the error's sentence where the write is kept.

        Raises:
            LedgerError: the book did not take it; if that is retriable the write is kept.
        """
        try:
            return await self.ledger.do(write)
        except LedgerError as error:
            if not error.retriable:
                raise
            self._keep(Ending(run_id, what, write), error)
            raise type(error)(f"{str(error).rstrip('.')}. {later}".rstrip()) from error

    async def end_job(self, run_id: RunId, what: str, write: Callable[[Ledger], Any]) -> None:
        """Finish or cancel a job; what the book does not take is kept or logged, for the job has ended anyhow."""
        try:
            await self.ledger.do(write)
        except LedgerError as error:
            if error.retriable:
                self._keep(Ending(run_id, what, write), error)
            else:
                log.warning("%s was not written: %s", what, error)

    def _keep(self, ending: Ending, error: LedgerError) -> None:
        log.warning("%s is put off: %s", ending.what, error)
        self._owed.append(ending)

    async def catch_up(self, run_id: RunId | None = None) -> None:
        """Write what is owed, of one run or of all; raises `LedgerError` while the book still cannot be written."""
        async with self._one_at_a_time:
            for ending in [owed for owed in self._owed if run_id in (None, owed.run_id)]:
                try:
                    await self.ledger.do(ending.write)
                except LedgerError as error:
                    if error.retriable:
                        raise
                    log.warning("%s was not written: %s", ending.what, error)
                self._owed.remove(ending)

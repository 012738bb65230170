"""The one thread that writes the book: SQLite's connection stays on it, and a cancelled request cannot tear a write."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import anyio

from kernelgate.budget.ledger import Ledger

T = TypeVar("T")
IN_LINE_S: Final = 1.0
"""Who waited so long for the thread has waited for the lock that kept it, and is told soon."""


class LedgerThread:
    """A ledger on a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._ledger: Ledger | None = None

    async def open(self) -> None:
        """Open the file; raises `LedgerError` with a sentence for the user."""

        def opening() -> Ledger:
            return Ledger.open(self._path)

        self._ledger = await asyncio.wrap_future(self._executor.submit(opening))

    async def do(self, work: Callable[[Ledger], T]) -> T:
        """Run one piece of work on the thread, to its end even if the caller is cancelled."""
        ledger = self._ledger
        assert ledger is not None, "the ledger is not open"
        asked_s = time.monotonic()

        def working() -> T:
            # Else those who stand in line behind a lock would wait for it one after the other, readers too.
            ledger.hurry(soon=time.monotonic() - asked_s > IN_LINE_S)
            return work(ledger)

        outcome = asyncio.wrap_future(self._executor.submit(working))
        with anyio.CancelScope(shield=True):
            await asyncio.wait([outcome])
        return outcome.result()

    async def close(self) -> None:
        """Close the file and end the thread."""
        if self._ledger is not None:
            await self.do(lambda ledger: ledger.close())
            self._ledger = None
        self._executor.shutdown(wait=True)

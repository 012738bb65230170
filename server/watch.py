"""What a server does beside its calls: heartbeats of its jobs, and a look for jobs whose server died."""

import logging
from typing import Final

import anyio

from kernelgate.budget.errors import LedgerError
from kernelgate.server.endings import Endings
from kernelgate.server.ledger_thread import LedgerThread
from kernelgate.server.owner import is_alive, this_process
from kernelgate.server.work import Workshop

log = logging.getLogger("kernelgate")

SWEEP_EVERY_S: Final = 30.0
BEAT_EVERY_S: Final = 5.0
"""While a job is at work: at most so much of what a killed server used is not known. A beat costs a millisecond."""


async def keep_watch(ledger: LedgerThread, endings: Endings) -> None:
    """A heartbeat of all our jobs, and a sweep of those whose server died. Runs as long as the server."""
    while True:
        try:
            await endings.catch_up()
            await ledger.do(lambda book: book.heartbeat(this_process()))
            swept = await ledger.do(lambda book: book.sweep(is_alive))
            if swept.jobs:
                log.warning("jobs %s were lost with their server; their holds are released", swept.jobs)
            await ledger.do(lambda book: book.expire_runs())
        except LedgerError as error:
            log.warning("the sweep is put off: %s", error)
        await anyio.sleep(SWEEP_EVERY_S)


async def keep_beating(ledger: LedgerThread, workshop: Workshop) -> None:
    """Heartbeats of jobs under a hold, with what each has used of a device. Runs as long as the server."""
    while True:
        await anyio.sleep(BEAT_EVERY_S)
        await beat(ledger, workshop)


async def beat(ledger: LedgerThread, workshop: Workshop) -> None:
    """One heartbeat with what is in use; none where nothing is."""
    in_use = workshop.in_use()
    try:
        if in_use:
            await ledger.do(lambda book: book.heartbeat(this_process(), in_use))
    except LedgerError as error:
        log.warning("a heartbeat is left out: %s", error)

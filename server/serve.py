"""The stdio server and its manners: one client, and nothing left behind when it goes."""

import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

import anyio

from kernelgate.server.preflight import make_data_folder, require, require_walls
from kernelgate.server.settings import Settings
from kernelgate.server.trouble import guarded

PARENT_WATCH_S: Final = 2.0
"""A client that vanished without closing our input is noticed within so long."""
LEAVE_WITHIN_S: Final = 4.0
"""Clean-up may take so long after a signal; then the process ends whatever hangs."""

log = logging.getLogger("kernelgate")


def set_up_log(settings: Settings) -> None:
    """Warnings to stderr, everything to the log file of the data folder."""
    make_data_folder(settings)
    log.setLevel(logging.INFO)
    form = logging.Formatter("%(asctime)s %(levelname)s %(process)d %(message)s")
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    handlers[0].setLevel(logging.WARNING)
    handlers.append(logging.FileHandler(settings.log, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(form)
        log.addHandler(handler)
    for library in ("uvicorn", "mcp"):  # what they have to say of a connection is for the log alone
        logging.getLogger(library).addHandler(handlers[1])
        logging.getLogger(library).propagate = False
    log.propagate = False
    logging.raiseExceptions = False  # a line that a full disk does not take is lost, without a traceback beside it


def make_ready(settings: Settings) -> None:
    """Before anything is served: the log, and what would be a mistake later; raises as `preflight` does."""
    set_up_log(settings)
    require(settings)
    if settings.require_confinement:
        require_walls(settings)


def run_stdio(settings: Settings) -> int:
    """Serve until the client leaves, a signal comes or the parent is gone; the exit status."""

    def serving() -> int:
        make_ready(settings)
        log.info("serving from %s", settings.data_dir)
        anyio.run(_serve, settings)
        return 0

    return guarded(serving)


async def _serve(settings: Settings) -> None:
    from kernelgate.server.app import build
    from kernelgate.server.lines import strict_stdio
    from kernelgate.server.services import open_services

    server = build(lambda: open_services(settings))
    async with anyio.create_task_group() as group:
        group.start_soon(leave_on_signal, group.cancel_scope.cancel)
        group.start_soon(_leave_with_parent, group.cancel_scope.cancel)

        def client_left() -> None:
            log.info("leaving: the client reads no more")
            end_soon()
            group.cancel_scope.cancel()

        async with strict_stdio(client_left, end_soon) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
        group.cancel_scope.cancel()


async def leave_on_signal(leave: Callable[[], None]) -> None:
    """Have the server leave at SIGTERM or SIGINT, and end the process if it does not."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("leaving on signal %s", number)
            end_soon()
            leave()
            return


async def _leave_with_parent(leave: Callable[[], None]) -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 -- nothing tells of a parent's end; it must be asked
        await anyio.sleep(PARENT_WATCH_S)
    log.info("leaving: the parent process is gone")
    end_soon()
    leave()


def end_soon() -> None:
    """End the process, whatever hangs: no cancellation reaches a thread in a read, or in a write that nobody reads."""
    import threading

    timer = threading.Timer(LEAVE_WITHIN_S, os._exit, (0,))
    timer.daemon = True
    timer.start()

"""A server whose worker and whose ledger fail on request, and that can die: a new one then takes its place."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from anyio.from_thread import BlockingPortal
from fakes import FakeRunner
from faults import Fault, FaultyConnection, JumpyClock, refusal
from going_well import as_fast, built, correct, finished, qualified, steady, timed
from mcp import Client

from kernelgate.budget.errors import LedgerError
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.records import Owner
from kernelgate.server import owner
from kernelgate.server.app import build
from kernelgate.server.measure import KNOWN_GOOD
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest

How = Literal["well", "wrong", "crashed", "our_fault", "capped", "down"]
"""`our_fault` strikes one try, `down` all that follow, also a known good candidate."""
LEASE_S = 0.25


def gone() -> sqlite3.OperationalError:
    """What the code of a dead process meets while it is cleared away: no way to write, and none to come."""
    return refusal(sqlite3.SQLITE_CORRUPT, "the process is dead")


class Owners:
    """Which server a thread belongs to, and which of them live: in place of process ids.

    A server of other tests in this process, which has heartbeats at any time, is what it really is.
    """

    START_S = 1.0

    def __init__(self) -> None:
        self.living: set[int] = set()
        self.of_thread: dict[int, int] = {}

    def this_process(self) -> Owner:
        number = self.of_thread.get(threading.get_ident())
        return owner.this_process() if number is None else Owner(pid=number, start_s=self.START_S)

    def is_alive(self, asked: Owner, quiet_s: float) -> bool:
        return asked.pid in self.living if asked.start_s == self.START_S else owner.is_alive(asked, quiet_s)


class FaultyServer:
    """One server process over a ledger, with a client."""

    def __init__(self, portal: BlockingPortal, folder: Path, owners: Owners, number: int, clock: JumpyClock) -> None:
        self.portal = portal
        self.owners = owners
        self.number = number
        self.clock = clock
        self.script: list[How] = []
        """How the next calls of the candidate go; then well."""
        self.leased_s = 0.0
        self.connection: FaultyConnection | None = None
        settings = Settings(data_dir=folder, device="cpu")
        runner = FakeRunner(self._answer)
        self._server = build(lambda: open_services(settings, runners={"cpu": runner}))
        self._stack = contextlib.ExitStack()
        owners.of_thread[portal.call(threading.get_ident)] = number
        owners.living.add(number)
        with mock.patch.object(Ledger, "open", self._opened):
            self.client = self._stack.enter_context(portal.wrap_async_context_manager(Client(self._server)))

    _open = Ledger.open

    def _opened(self, path: Path) -> Ledger:
        self.owners.of_thread[threading.get_ident()] = self.number
        ledger = FaultyServer._open(path, self.clock, busy_timeout_s=0.02)
        self.connection = FaultyConnection(ledger._connection, gone)
        ledger._connection = self.connection
        return ledger

    def _answer(self, request: WorkerRequest) -> WorkerReply:
        ours = any(KNOWN_GOOD in text for text in request.files.values())
        if request.procedure == "qualify":
            return qualified(request)
        down = self.script[:1] == ["down"]
        how: How = "down" if down else self.script.pop(0) if self.script and not ours else "well"
        lease_s = 0.0 if request.procedure == "compile" else min(LEASE_S, request.cap_s)
        self.leased_s += 0.0 if ours or down else lease_s
        seconds = {"lease_s": lease_s, "wall_s": LEASE_S}
        if how in ("our_fault", "down"):
            ended = ChildExit(kind="signalled", status=9)
            return WorkerReply(request_id=request.request_id, exit=ended, fault="The referee died.", **seconds)
        if how == "crashed":
            return finished(request, None, exit=ChildExit(kind="signalled", status=11), **seconds)
        if how == "capped":
            return finished(request, None, exit=ChildExit(kind="cap_reached"), **seconds)
        if request.procedure == "compile":
            return built(request)
        if request.procedure == "check_correctness":
            if how == "wrong":
                comparison = {"workload": "64x256", "distribution": "normal", "problem": "wrong_shape"}
                return finished(request, {"comparisons": [comparison], "planned": 1}, **seconds)
            return correct(request, **seconds)
        if ours:
            return as_fast(request)
        gain = 0.5 if how == "wrong" else 2.0
        return timed(request, steady("64x256", gain=gain), steady("1024x1024", gain=gain), **seconds)

    def call(self, tool: str, **arguments: Any) -> tuple[dict[str, Any], str]:
        """The structure of the answer, or the sentence of the error."""
        result = self.portal.call(self.client.call_tool, tool, arguments)
        said = "".join(part.text for part in result.content)
        return ({}, said) if result.is_error else (dict(result.structured_content), "")

    def meet(self, fault: Fault | None, *script: How) -> None:
        """From now on the ledger fails so, and the worker answers so."""
        assert self.connection is not None
        self.connection.fault, self.script = fault, list(script)

    @property
    def dead(self) -> bool:
        return self.connection is not None and self.connection.dead

    def end(self, *, killed: bool) -> None:
        """The process is gone: at once, or after it tidied up."""
        assert self.connection is not None
        if killed:
            self.connection.dead = True
        with contextlib.suppress(LedgerError, BaseExceptionGroup):
            self._stack.close()
        self.owners.living.discard(self.number)


@contextlib.contextmanager
def processes(owners: Owners) -> Iterator[None]:
    """Servers of this test are told apart by their threads."""
    with (
        mock.patch("kernelgate.server.services.this_process", owners.this_process),
        mock.patch("kernelgate.server.watch.this_process", owners.this_process),
        mock.patch("kernelgate.server.watch.is_alive", owners.is_alive),
    ):
        yield

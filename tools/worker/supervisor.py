"""The supervisor of one device: forks, watches deadlines, kills, reaps and holds the lease. It judges nothing.

Single-threaded, and it never runs a torch operation: children forked after one would hang. It speaks with the server
over one socket and ends, with all its children, when that socket closes.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from kernelgate.tools.kit.wire import Cancel, ChildExit, DeviceRef, Hello, Progress, Returned, WorkerReply
from kernelgate.tools.worker.calls import ANSWER_GRACE_S, Call, classify, conduct
from kernelgate.tools.worker.channel import Channel, Message
from kernelgate.tools.worker.conductor import Conductor, ConductorLost
from kernelgate.tools.worker.lease import LEASE_FOLDER, Lease
from kernelgate.tools.worker.nursery import MustReplace, Nursery
from kernelgate.tools.worker.parts import Parts, Versions
from kernelgate.tools.worker.plans import CannotFork
from kernelgate.tools.worker.room import Room
from kernelgate.tools.worker.sealed import Envelope, Sealed
from kernelgate.tools.worker.spares import Spares
from kernelgate.tools.worker.survey import Survey

READY_LIMIT_S: Final = 120.0
"""For a referee to build itself for a task."""
QUEUE_LIMIT_S: Final = 120.0
"""At the head of this supervisor's queue, for the lease that another server holds."""
_LEASE_POLL_S: Final = 0.01


@dataclass(frozen=True)
class Unanswered:
    """What a supervisor leaves to the one that replaces it."""

    envelopes: list[Envelope]
    rest: bytes
    """Read of a frame that is not whole yet."""
    sealed: list[int]
    """Descriptors of the sealed requests, in the order of the frames."""


@dataclass(frozen=True)
class Settings:
    """How a supervisor was started."""

    device: DeviceRef
    state_dir: Path
    lease_dir: Path = LEASE_FOLDER
    queue_limit_s: float = QUEUE_LIMIT_S
    namespaces: bool = True
    grace_s: float = ANSWER_GRACE_S
    """For a conductor to answer after its call was cut."""


class Supervisor:
    """Serves one server until its socket closes.

    Args:
        sock: To the server.
        settings: How it was started.
        parts: What its children run.
        versions: What was preloaded.
        survey: What the host can do.
        replace: Called with what is unanswered when this process must be replaced by a fresh one; does not return.
        unforkable: Why no child may be forked although the process is fresh; empty if it may.
    """

    def __init__(
        self,
        sock: socket.socket,
        settings: Settings,
        parts: Parts,
        versions: Versions,
        survey: Survey,
        replace: Callable[[Unanswered], None],
        unforkable: str,
    ) -> None:
        self._settings, self._versions, self._survey, self._replace = settings, versions, survey, replace
        self._nursery = Nursery(survey.host, settings.device, settings.state_dir, parts, unforkable)
        self._lease = Lease(settings.device.uid, settings.lease_dir)
        self._turn = asyncio.Lock()
        ahead = parts.warms_up(settings.device)
        self._spares = Spares(self._nursery, self._lease, self._turn, self._later, wanted=ahead)
        self._room = Room(self._lease, self._give_memory_back)
        self._builds = asyncio.Semaphore(os.cpu_count() or 1)
        self._calls: dict[int, Call] = {}
        self._carried: list[tuple[Envelope, Sealed]] = []
        self._arrived: deque[int] = deque()
        self._replacing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._referee: Conductor | None = None
        self._referee_scratch: Path | None = None
        self._closed = asyncio.Event()
        self._sock = sock

    async def serve(self, *, data: bytes = b"", sealed: Iterable[int] = (), greet: bool = True) -> None:
        """Serve until the server is gone. `data`, `sealed`: what a predecessor had received and not answered."""
        self._arrived.extend(sealed)
        self._server = Channel(self._sock, self._hear, self._end, data, self._arrived)
        if greet:
            hello = Hello(
                pid=os.getpid(),
                torch=self._versions.torch,
                triton=self._versions.triton,
                confinement=self._survey.holds,
                gaps=self._survey.gaps,
            )
            self._server.send(hello.model_dump(mode="json"))
        await self._nursery.scratches.remove_orphans()
        self._later(self._room.watch(self._turn))
        await self._closed.wait()
        await self._close()

    def _hear(self, message: Message) -> None:
        try:
            if message.get("op") == "cancel":
                self._cancel(Cancel.model_validate(message).request_id)
            else:
                self._accept(Envelope.model_validate_json(json.dumps(message)), Sealed(self._arrived.popleft()))
        except (ValidationError, IndexError) as error:
            print(f"supervisor: a frame that is no request: {error}", file=sys.stderr)  # noqa: T201  its only log
            self._closed.set()

    def _end(self, why: str) -> None:
        if why:
            print(f"supervisor: the server's socket broke: {why}", file=sys.stderr)  # noqa: T201  its only log
        self._closed.set()

    def _accept(self, request: Envelope, sealed: Sealed) -> None:
        if self._replacing:
            self._carried.append((request, sealed))
            return
        call = Call(request, sealed, lambda progress: self._server.send(progress.model_dump(mode="json")))
        self._calls[request.request_id] = call
        self._later(self._serve_call(call))

    def _cancel(self, request_id: int) -> None:
        call = self._calls.get(request_id)
        if call is not None:
            call.cancelled.set()
        for carried in [carried for carried in self._carried if carried[0].request_id == request_id]:
            self._carried.remove(carried)
            carried[1].close()
            self._send_reply(Returned(reply=WorkerReply(request_id=request_id, exit=ChildExit(kind="cancelled"))))

    async def _serve_call(self, call: Call) -> None:
        try:
            await (self._build(call) if call.request.procedure == "compile" else self._measure(call))
            self._return(call)
        except MustReplace:
            self._replacing = True
            self._carried.append((call.request, call.sealed))
        except (CannotFork, OSError, ValueError) as error:
            call.fault = f"The supervisor could not run the call: {error}"
            self._return(call)
        except Exception as error:  # noqa: BLE001  whatever it is, the request gets its one reply
            traceback.print_exc()
            call.fault = f"The supervisor failed: {type(error).__name__}."
            self._return(call)
        finally:
            del self._calls[call.request.request_id]
            if (call.request, call.sealed) not in self._carried:
                call.close()
            if self._replacing and not self._calls:
                await self._make_way()

    def _return(self, call: Call) -> None:
        if "observation" in call.answer and isinstance(held := call.answer["observation"], dict) and held:
            held["confinement"] = list(self._survey.walls)
        self._send_reply(*call.returned())

    def _send_reply(self, returned: Returned, descriptors: Sequence[int] = ()) -> None:
        try:
            self._server.send(returned.model_dump(mode="json"), descriptors)
        except ValueError as error:
            fault = f"The answer does not fit a frame: {error}."
            small = returned.reply.model_copy(update={"facts": None, "observation": {}, "fault": fault})
            told = Returned(reply=small)
            self._server.send(told.model_dump(mode="json"))

    async def _measure(self, call: Call) -> None:
        """A call on the device: candidate, lease, referee, in this order."""
        if self._turn.locked():
            self._tell_waiting(call)
        if not await self._enter(self._turn, call):
            return
        mine = self._spares.take(call)
        theirs: socket.socket | None = None
        try:
            if call.request.language and mine is None:
                mine, theirs = socket.socketpair()
                await self._nursery.candidate(call, theirs, "run")
            if await self._take_lease(call):
                try:
                    await self._conduct_leased(call, mine)
                finally:
                    self._give_lease_back(call)
        finally:
            for sock in (mine, theirs):
                if sock is not None:
                    sock.close()
            await self._nursery.clean_up(call)
            self._turn.release()

    async def _enter(self, gate: asyncio.Lock | asyncio.Semaphore, call: Call) -> bool:
        """Wait for a turn; False, and no turn, if the call was cancelled before it came."""
        asked_s = time.monotonic()
        entered = asyncio.ensure_future(gate.acquire())
        cancel = asyncio.ensure_future(call.cancelled.wait())
        try:
            await asyncio.wait((entered, cancel), return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancel.cancel()
            call.queue_s += time.monotonic() - asked_s
            if not entered.done():
                entered.cancel()
        if entered.done() and not call.cancelled.is_set():
            return True
        if entered.done():
            gate.release()
        call.exit = ChildExit(kind="cancelled")
        return False

    def _tell_waiting(self, call: Call) -> None:
        call.progress(Progress(request_id=call.request.request_id, stage="waiting for the device"))

    async def _take_lease(self, call: Call) -> bool:
        """Wait for the lease without blocking the loop; False if the call ended before it came."""
        if not call.request.lease:
            return True
        asked_s = time.monotonic()
        told = False
        try:
            while not self._lease.try_take():
                if time.monotonic() - asked_s > self._settings.queue_limit_s:
                    call.fault = (
                        f"The device {self._settings.device.uid} was leased by others for "
                        f"{self._settings.queue_limit_s:g} s; try again when they are done."
                    )
                    return False
                if not told:
                    told = True
                    self._tell_waiting(call)
                await self._room.give_if_asked()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(call.cancelled.wait(), _LEASE_POLL_S)
                if call.cancelled.is_set():
                    call.exit = ChildExit(kind="cancelled")
                    return False
        finally:
            call.queue_s += time.monotonic() - asked_s
        call.lease_taken_s = time.monotonic()
        return True

    def _give_lease_back(self, call: Call) -> None:
        if self._lease.held:
            self._lease.release()
            call.lease_s = time.monotonic() - call.lease_taken_s

    async def _conduct_leased(self, call: Call, mine: socket.socket | None) -> None:
        begun_s = time.monotonic()
        try:
            referee = await self._ready_referee(call)
            call.house_s = time.monotonic() - begun_s
            if call.cancelled.is_set() or referee is None:
                call.exit = ChildExit(kind="cancelled")
                return
            descriptors = [call.sealed.fileno(), *([mine.fileno()] if mine is not None else [])]
            answer = referee.expect(call.request.request_id, call.candidate, call.progress)
            referee.send({"op": "call", "request_id": call.request.request_id}, descriptors)
            async with self._spares.started_beside(call):
                await conduct(call, referee, answer, self._settings.grace_s)
            call.exit = await classify(call)
            if call.fault or call.failed or (call.cut and call.candidate is None):
                await self._end_referee(call)
        except ConductorLost as error:
            call.fault = str(error)
            await self._end_referee(call)
        finally:
            # Inside the lease: what the next call measures must not share the device with what this one left.
            if call.candidate is not None:
                call.candidate.kill()
                await call.candidate.gone()

    def _later(self, work: Coroutine[None, None, None]) -> None:
        """Have something done that no call waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ready_referee(self, call: Call) -> Conductor | None:
        """The referee, built for the call's task; None if the call was cancelled meanwhile. Raises `ConductorLost`."""
        referee = self._referee
        if referee is None or not referee.usable:
            await self._end_referee(call)
            referee, self._referee_scratch = await self._nursery.referee()
            self._referee = referee
            if self._lease.held:
                self._lease.list_resident(referee.child.keeper_pid)
        request = call.request
        answer = referee.expect(request.request_id, None, call.progress)
        referee.send({"op": "ready", "request_id": request.request_id}, [call.sealed.fileno()])
        cancel = asyncio.ensure_future(call.cancelled.wait())
        await asyncio.wait((answer, cancel), timeout=READY_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        cancel.cancel()
        if not answer.done():
            answer.cancel()
            await self._end_referee(call)
            if call.cancelled.is_set():
                return None
            raise ConductorLost(f"The referee was not ready for the task within {READY_LIMIT_S:g} s.")
        ready = answer.result()
        if ready.message.get("op") != "ready":
            call.take(ready)
            raise ConductorLost("The referee could not be made ready:")
        if ready.message.get("crowded"):
            await self._room.ask()
        return referee

    async def _give_memory_back(self) -> None:
        await self._spares.end()
        await self._end_referee()

    async def _end_referee(self, call: Call | None = None) -> None:
        """What it had printed goes with the reply to the call, unread here: it has seen hidden workloads."""
        referee, self._referee = self._referee, None
        if referee is not None:
            await self._nursery.end(referee, call)
        if self._referee_scratch is not None:
            await self._nursery.scratches.remove(self._referee_scratch)
            self._referee_scratch = None

    async def _build(self, call: Call) -> None:
        """A compile: a trusted builder of its own and a tracing candidate, no device, several at a time."""
        if not await self._enter(self._builds, call):
            return
        builder: Conductor | None = None
        mine, theirs = socket.socketpair()
        try:
            caches = await self._nursery.candidate(call, theirs, "trace")
            with mine.dup() as copy:
                builder, answer = await self._nursery.builder(call, caches, copy)
                self._spares.start_if_idle(call)
                await conduct(call, builder, answer, self._settings.grace_s)
                call.exit = await classify(call)
        finally:
            mine.close()
            theirs.close()
            if builder is not None:
                await self._nursery.end(builder, call)
            await self._nursery.clean_up(call)
            self._builds.release()

    async def _make_way(self) -> None:
        """Replace this process by a fresh one that goes on with what is unanswered."""
        await self._give_memory_back()
        await self._server.sent()
        if not self._closed.is_set():
            envelopes = [envelope for envelope, _ in self._carried]
            sealed = [*(sealed.fileno() for _, sealed in self._carried), *self._arrived]
            self._replace(Unanswered(envelopes, self._server.rest, sealed))

    async def _close(self) -> None:
        """The server is gone: so is everything else, without waiting for answers."""
        for task in list(self._tasks):
            task.cancel()
        await self._nursery.kill_all()
        for task in list(self._tasks):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._end_referee()
        self._lease.release()
        self._nursery.sweep_strangers()
        self._server.close()

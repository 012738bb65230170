"""The port through which the server has work done on a device, and its real side: a supervisor process. No torch."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from pydantic import JsonValue, TypeAdapter, ValidationError

import kernelgate
from kernelgate.tools.kit.wire import (
    ANSWER_LIMIT_BYTES,
    Cancel,
    ChildExit,
    DeviceRef,
    FromSupervisor,
    Hello,
    Progress,
    Returned,
    WorkerReply,
    WorkerRequest,
)
from kernelgate.tools.worker import frames, passing
from kernelgate.tools.worker.channel import FrameBuffer
from kernelgate.tools.worker.sealed import Envelope, Sealed

OnProgress: TypeAlias = Callable[[Progress], None]

IDLE_LIMIT_S: Final = 600.0
"""An unused supervisor holds about 300 MB: after ten minutes it leaves."""
START_LIMIT_S: Final = 180.0
"""For a supervisor to import torch from a cold disk and say hello."""
CLOSE_LIMIT_S: Final = 5.0
SILENCE_MARGIN_S: Final = 420.0
"""A supervisor with work is heard from within its cap and this: queue, ready and grace limits, and some room."""
_READ_BYTES: Final = 1 << 18
_PASSED_ON: Final = (
    "PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CC", "CXX",
)  # fmt: skip
"""All that a supervisor, and so a candidate that reads its `/proc/1/environ`, sees of the server's environment."""
_FRAME: Final[TypeAdapter[FromSupervisor]] = TypeAdapter(FromSupervisor)
_log = logging.getLogger(__name__)


class RunnerClosed(Exception):
    """The runner was closed: the server is shutting down."""


class SupervisorUnavailable(Exception):
    """The supervisor could not be started: one sentence, ours."""


class Runner(Protocol):
    """Has procedures run on one device."""

    async def run(self, request: WorkerRequest, on_progress: OnProgress) -> WorkerReply:
        """Run a request to its reply; a fault of ours is in the reply. Being cancelled cancels the work."""
        ...

    async def cancel(self, request_id: int) -> None:
        """Stop a request's work; its reply still comes, with exit `cancelled`. An unknown id does nothing."""
        ...

    async def hello(self) -> Hello:
        """What runs the device side and what confines candidates; raises `SupervisorUnavailable`."""
        ...

    async def close(self) -> None:
        """End the device side with all that it runs; open requests get a reply with a fault."""
        ...


@dataclass
class _Open:
    """A request without its reply."""

    request: WorkerRequest
    on_progress: OnProgress
    reply: "asyncio.Future[WorkerReply]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    session: "_Session | None" = None
    """Who was asked; None until there is one."""


@dataclass
class _Session:
    """One supervisor process."""

    process: "subprocess.Popen[bytes]"
    sock: socket.socket
    hello: "asyncio.Future[Hello]"
    outbox: "asyncio.Queue[tuple[bytes, Sealed | None]]" = field(default_factory=lambda: asyncio.Queue())
    tasks: "list[asyncio.Task[None]]" = field(default_factory=lambda: list[asyncio.Task[None]]())
    arrived: deque[int] = field(default_factory=lambda: deque[int]())
    """Descriptors, in the order of the frames that they belong to."""
    ended: bool = False


@dataclass(frozen=True)
class SupervisorOptions:
    """How supervisors are started; the defaults are for a real server."""

    parts: str = ""
    """Module with what children run; empty for the real one."""
    python_path: tuple[str, ...] = ()
    """Further folders to import from."""
    lease_dir: Path | None = None
    namespaces: bool = True
    queue_limit_s: float | None = None
    grace_s: float | None = None
    idle_limit_s: float = IDLE_LIMIT_S
    require_confinement: bool = False
    """Run nothing where a supervisor finds a gap in what holds candidates."""
    silence_margin_s: float = SILENCE_MARGIN_S

    def command(self, server: int, device: DeviceRef, state_dir: Path) -> list[str]:
        """The command line of a supervisor."""
        command = [sys.executable, "-P", "-m", "kernelgate.tools.worker", "--server", str(server)]
        command += ["--device", device.model_dump_json(), "--state-dir", str(state_dir)]
        command += ["--parts", self.parts] if self.parts else []
        command += ["--lease-dir", str(self.lease_dir)] if self.lease_dir else []
        command += ["--queue-limit-s", str(self.queue_limit_s)] if self.queue_limit_s is not None else []
        command += ["--grace-s", str(self.grace_s)] if self.grace_s is not None else []
        return command if self.namespaces else [*command, "--no-namespaces"]

    def environment(self, device: DeviceRef) -> dict[str, str]:
        """A clean environment: nothing of the server's but what compilers, drivers and python need."""
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        package_folders = [str(Path(folder).parent) for folder in kernelgate.__path__]
        return {
            **passed,
            "PYTHONPATH": os.pathsep.join([*package_folders, *self.python_path]),
            "PYTHONUNBUFFERED": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": str(device.threads),
        }


class SupervisorRunner:
    """Runs requests through a supervisor process, started at the first use, again when it died, ended when idle.

    All methods belong to one event loop (asyncio, also under anyio) and never block it.
    """

    def __init__(self, device: DeviceRef, state_dir: Path, options: SupervisorOptions | None = None) -> None:
        self._device = device
        self._state_dir = state_dir
        self._options = options or SupervisorOptions()
        self._session: _Session | None = None
        self._open: dict[int, _Open] = {}
        self._closed = False
        self._idle: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def supervisor_pid(self) -> int | None:
        """Process id of the running supervisor."""
        return self._session.process.pid if self._session is not None else None

    async def run(self, request: WorkerRequest, on_progress: OnProgress) -> WorkerReply:
        """See `Runner`. Request ids must be unique among open requests."""
        if request.request_id in self._open:
            raise ValueError(f"request {request.request_id} is already running")
        opened = self._open[request.request_id] = _Open(request, on_progress)
        try:
            return await self._answered(opened)
        except asyncio.CancelledError:
            await self.cancel(request.request_id)
            raise
        finally:
            self._open.pop(request.request_id, None)
            self._watch()

    async def _answered(self, opened: _Open) -> WorkerReply:
        request = opened.request
        try:
            frame = frames.encode(Envelope.of(request).model_dump(mode="json"))
            session = await self._confining_session()
        except (ValueError, SupervisorUnavailable) as error:
            return _fault(request.request_id, str(error))
        if opened.reply.done():  # cancelled before anybody was there to be asked
            return opened.reply.result()
        if session.ended:
            return _fault(request.request_id, "The supervisor ended before the request reached it.")
        try:
            sealed = Sealed.seal(request)
        except (OSError, ValueError) as error:
            return _fault(request.request_id, f"The request could not be written down: {error}")
        opened.session = session
        self._watch()
        session.outbox.put_nowait((frame, sealed))
        return await opened.reply

    async def cancel(self, request_id: int) -> None:
        """See `Runner`."""
        opened = self._open.get(request_id)
        if opened is not None and opened.session is not None:
            opened.session.outbox.put_nowait((_cancel_frame(request_id), None))
        elif opened is not None and not opened.reply.done():
            opened.reply.set_result(WorkerReply(request_id=request_id, exit=ChildExit(kind="cancelled")))

    async def hello(self) -> Hello:
        """See `Runner`. Starts the supervisor if none runs."""
        session = await self._ready_session()
        self._watch()
        return session.hello.result()

    async def close(self) -> None:
        """See `Runner`. Bounded: a supervisor that does not leave is killed."""
        self._closed = True
        self._end("The server is shutting down.")
        while self._ending:
            await asyncio.wait(list(self._ending))

    async def _confining_session(self) -> _Session:
        session = await self._ready_session()
        if self._options.require_confinement and (lacking := session.hello.result().why_not_confined):
            raise SupervisorUnavailable(lacking)
        return session

    async def _ready_session(self) -> _Session:
        if self._closed:
            raise RunnerClosed("the runner is closed")
        if self._session is None:
            self._session = self._start()
        session = self._session
        try:
            await asyncio.wait_for(asyncio.shield(session.hello), START_LIMIT_S)
        except TimeoutError:
            self._end("", session)
            why = f"The supervisor said nothing within {START_LIMIT_S:g} s of its start."
            raise SupervisorUnavailable(why) from None
        return session

    def _start(self) -> _Session:
        folder = self._state_dir / "empty"
        folder.mkdir(parents=True, exist_ok=True)
        mine, theirs = socket.socketpair()
        mine.settimeout(0)
        with theirs:
            try:
                process = subprocess.Popen(
                    self._options.command(theirs.fileno(), self._device, self._state_dir.resolve()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    cwd=folder,
                    env=self._options.environment(self._device),
                    start_new_session=True,
                )
            except OSError as error:
                mine.close()
                raise SupervisorUnavailable(f"The supervisor could not be started: {error}.") from error
        session = _Session(process, mine, asyncio.get_running_loop().create_future())
        session.tasks = [asyncio.create_task(self._read(session)), asyncio.create_task(_write(session))]
        return session

    async def _read(self, session: _Session) -> None:
        """Take frames until the supervisor is gone, then answer what is open."""
        buffer = FrameBuffer(limit_bytes=ANSWER_LIMIT_BYTES)
        why = "The supervisor ended unexpectedly"
        try:
            while chunk := await passing.receive(session.sock, _READ_BYTES, session.arrived):
                buffer.feed(chunk)
                while (message := buffer.take()) is not None:
                    self._hear(session, message)
                self._watch()
        except (frames.BrokenFrame, ValidationError) as error:
            why = f"The supervisor sent a broken frame ({error})"
        except OSError as error:
            why = f"The socket to the supervisor broke ({error})"
        self._end(why, session)

    def _hear(self, session: _Session, message: dict[str, JsonValue]) -> None:
        match _FRAME.validate_json(json.dumps(message)):
            case Hello() as hello:
                if not session.hello.done():
                    session.hello.set_result(hello)
            case Progress() as progress:
                if (opened := self._open.get(progress.request_id)) is not None:
                    _tell(opened, progress)
            case Returned() as returned:
                reply, printed = passing.opened(returned, session.arrived)
                if printed and reply.fault.startswith("The ") and "was lost" in reply.fault:
                    reply = reply.model_copy(update={"fault": f"{reply.fault}\n{printed}"})
                elif printed:
                    _log.warning("the device's own side had printed:\n%s", printed)
                opened = self._open.get(reply.request_id)  # unknown: late, for somebody who has left
                if opened is not None and not opened.reply.done():
                    opened.reply.set_result(reply)

    def _watch(self) -> None:
        """Set the timers anew: for idleness where nothing is open, for silence where something is."""
        for timer in (self._idle, self._silence):
            if timer is not None:
                timer.cancel()
        self._idle = self._silence = None
        if self._session is None:
            return
        loop = asyncio.get_running_loop()
        if not self._open:
            self._idle = loop.call_later(self._options.idle_limit_s, self._end, "")
            return
        limit_s = max(opened.request.cap_s for opened in self._open.values()) + self._options.silence_margin_s
        self._silence = loop.call_later(limit_s, self._end, f"The supervisor was silent for {limit_s:g} s")

    def _end(self, why: str, session: _Session | None = None) -> None:
        """End a session: close its socket, answer what is open, see to it that the process is gone."""
        session = session or self._session
        if session is None or session.ended:
            return
        session.ended = True
        if session is self._session:
            self._session = None
            self._watch()
        for opened in self._open.values():
            if opened.session is session and not opened.reply.done():
                opened.reply.set_result(_fault(opened.request.request_id, why, started=True))
        task = asyncio.create_task(self._see_off(session, why))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _see_off(self, session: _Session, why: str) -> None:
        for task in session.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*session.tasks, return_exceptions=True)
        session.sock.close()
        while not session.outbox.empty():
            _, sealed = session.outbox.get_nowait()
            if sealed is not None:
                sealed.close()
        passing.close_all(session.arrived)
        status = await _wait(session.process, CLOSE_LIMIT_S)
        if status is None:
            session.process.send_signal(signal.SIGKILL)
            status = await _wait(session.process, CLOSE_LIMIT_S)
        if not session.hello.done():
            said = f"{why or 'The supervisor ended'} (exit status {status})."
            session.hello.set_exception(SupervisorUnavailable(said))
            session.hello.exception()  # whoever waits gets it; nobody has to
        elif why and not self._closed:
            _log.warning("%s (exit status %s)", why, status)


async def _write(session: _Session) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # the reader sees the same end and says why
        while True:
            frame, sealed = await session.outbox.get()
            if sealed is not None:
                with sealed:
                    frame = frame[await passing.send(session.sock, frame, sealed) :]
            await loop.sock_sendall(session.sock, frame)


def _cancel_frame(request_id: int) -> bytes:
    return frames.encode(Cancel(request_id=request_id).model_dump(mode="json"))


async def _wait(process: "subprocess.Popen[bytes]", limit_s: float) -> int | None:
    """Exit status of a process, or None if it still runs after so long. Never blocks the loop, needs no thread."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return process.wait()
    try:
        loop.add_reader(descriptor, ended.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), limit_s)
        return process.poll()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _tell(opened: _Open, progress: Progress) -> None:
    try:
        opened.on_progress(progress)
    except Exception as error:  # noqa: BLE001  the listener's own bug ends its own wait, not everybody's reader
        if not opened.reply.done():
            opened.reply.set_exception(error)


def _fault(request_id: int, why: str, *, started: bool = False) -> WorkerReply:
    # A candidate that was running may be why the supervisor died: `not_started` would clear it of that.
    ended = ChildExit(kind="exited" if started else "not_started")
    return WorkerReply(request_id=request_id, exit=ended, fault=f"{why.rstrip('.')}.")

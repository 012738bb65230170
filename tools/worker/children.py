"""Children of the supervisor: each behind its walls, below a trusted keeper that outlives it and reports how it ended.

supervisor ─ fork ─ keeper (process 1 of its pid namespace where there is one, subreaper elsewhere) ─ fork ─ child

The keeper dies with the supervisor and takes all below it along, so that not even `kill -9` leaves an orphan.
"""

import asyncio
import contextlib
import faulthandler
import fcntl
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kernelgate.tools.kit.wire import LOG_LIMIT_BYTES
from kernelgate.tools.worker import confine, namespaces, processes
from kernelgate.tools.worker.capture import Capture
from kernelgate.tools.worker.confine import Walls
from kernelgate.tools.worker.plans import CannotFork, Ended, Plan

_READ_BYTES: Final = 1 << 16
_LOG_PIPE_BYTES: Final = 1 << 18
_LOG_MOVES: Final = 2 * _LOG_PIPE_BYTES // LOG_LIMIT_BYTES + 2
"""Each takes up to half of what is kept of a log."""
_REPORT_LIMIT_BYTES: Final = 1 << 14
_KEEPER_SWEEP_S: Final = 1.0
"""Without a pid namespace the keeper sweeps before it ends; longer than this and it is killed too."""


class Child:
    """A running child as the supervisor sees it: its keeper, its log, and how it ended."""

    def __init__(self, keeper_pid: int, log: int, report: int, walls: Walls) -> None:
        self.keeper_pid = keeper_pid
        self.capture = Capture()
        self._walls = walls
        self._log, self._report = log, report
        self._pidfd = os.pidfd_open(keeper_pid)
        self._loop = asyncio.get_running_loop()
        self._said = bytearray()
        self._gone = asyncio.Event()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._warmed = asyncio.Event()
        self._pid = 0
        for descriptor in (log, report):
            os.set_blocking(descriptor, False)
        self._loop.add_reader(log, self._read_log)
        self._loop.add_reader(report, self._read_report)
        self._loop.add_reader(self._pidfd, self._reap)

    async def begun(self, timeout_s: float) -> None:
        """Wait until the child stands behind its walls; raises `CannotFork` if it could not be put there."""
        try:
            await asyncio.wait_for(asyncio.shield(self._begun), timeout_s)
        except TimeoutError:
            raise CannotFork(f"the child was not ready within {timeout_s:g} s") from None

    async def warmed(self, timeout_s: float) -> None:
        """Wait until what was to be done ahead is done, or has failed; raises `CannotFork` after so long."""
        try:
            await asyncio.wait_for(self._warmed.wait(), timeout_s)
        except TimeoutError:
            raise CannotFork(f"the child was not warm within {timeout_s:g} s") from None

    @property
    def ended(self) -> Ended | None:
        """How the child's process ended by itself, as its keeper reported; None while it runs or if we killed it."""
        for line in bytes(self._said).decode(errors="replace").splitlines():
            word, _, number = line.partition(" ")
            if word in ("exited", "signalled") and number.isdigit():
                return Ended(signalled=word == "signalled", status=int(number))
        return None

    @property
    def running(self) -> bool:
        """Whether the child's process is alive and not on its way out, at this very moment."""
        return not self._gone.is_set() and self._pid > 0 and processes.state(self._pid) not in "ZX"

    def stop(self) -> bool:
        """Stop all processes of the child; False if some could not be."""
        return processes.stop_tree(self.keeper_pid)

    def busy_ns(self) -> tuple[int, int]:
        """Processor time so far of all processes of the child, and of its own first thread alone."""
        if self._gone.is_set():
            return 0, 0
        return processes.busy_ns(self.keeper_pid, own=False), processes.main_thread_ns(self._pid)

    def proceed(self) -> None:
        """Let them run again."""
        if not self._gone.is_set():
            processes.continue_tree(self.keeper_pid)

    def kill(self) -> None:
        """Kill all processes of the child; returns at once."""
        if self._gone.is_set():
            return
        # Process 1 takes its namespace along; elsewhere the keeper must live to sweep.
        processes.send_signal(self.keeper_pid, signal.SIGKILL if self._walls.host.namespaces else signal.SIGTERM)

    async def finished(self, timeout_s: float) -> bool:
        """Wait for its end without hastening it; False if it still runs after so long."""
        try:
            await asyncio.wait_for(self._gone.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def gone(self) -> None:
        """Wait until the child and all that it started are dead and reaped. Kill first; bounded."""
        try:
            await asyncio.wait_for(self._gone.wait(), _KEEPER_SWEEP_S)
        except TimeoutError:
            processes.kill_tree(self.keeper_pid)
            processes.send_signal(self.keeper_pid, signal.SIGKILL)
            await self._gone.wait()
        self._drain()

    def _read_log(self) -> None:
        if self._log >= 0 and not _moved(self._log, self.capture):
            self._loop.remove_reader(self._log)

    def _read_report(self) -> None:
        if not _pump(self._report, self._hear):
            self._loop.remove_reader(self._report)

    def _hear(self, chunk: bytes) -> None:
        self._said += chunk[: _REPORT_LIMIT_BYTES - len(self._said)]
        if b"\nwarm\n" in self._said:
            self._warmed.set()
        if self._begun.done():
            return
        line, complete, _ = bytes(self._said).partition(b"\n")
        if complete and line == b"begun":
            self._pid = next(iter(processes.children(self.keeper_pid)), 0)
            self._begun.set_result(None)
        elif complete:
            self._fail(line.decode(errors="replace"))

    def _fail(self, why: str) -> None:
        self._begun.set_exception(CannotFork(f"a child could not be put behind its walls: {why}"))
        self._begun.exception()  # whoever waits gets it; nobody has to

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.waitpid(self.keeper_pid, 0)
        self._read_report()
        if not self._begun.done():
            self._fail("the child ended before it was ready")
        self._warmed.set()
        self._gone.set()

    def _drain(self) -> None:
        """Take what is left in the pipes and close them. All writers are dead."""
        if self._pidfd < 0:
            return
        self._read_log()
        self._read_report()
        for descriptor in (self._log, self._report, self._pidfd):
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._log = self._report = self._pidfd = -1
        if self._walls.host.pids_cgroup:
            with contextlib.suppress(OSError):  # the kernel may still be emptying it; `survey` removes leftovers
                _cgroup(self._walls.host.pids_cgroup, self.keeper_pid).rmdir()


async def spawn(plan: Plan, family: set[Child]) -> Child:
    """Fork a child behind its walls; await `begun` of what comes back. Raises `CannotFork`.

    It joins the family in the same step, so that a sweep never takes it for a stranger. The caller still owns
    `plan.keep` and closes it.
    """
    loop = asyncio.get_running_loop()
    forked: asyncio.Future[Child] = loop.create_future()

    def fork() -> None:
        if forked.cancelled():
            return
        try:
            child = _spawn(plan)
        except CannotFork as error:
            forked.set_exception(error)
        else:
            family.add(child)
            forked.set_result(child)

    # Outside any task: a child forked inside one would inherit it as its current task and could run no loop itself.
    loop.call_soon(fork)
    return await forked


def _spawn(plan: Plan) -> Child:
    log_read, log_write = os.pipe2(os.O_CLOEXEC)
    report_read, report_write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(PermissionError):  # over the user's quota of pipe memory the default size will do
        fcntl.fcntl(log_write, fcntl.F_SETPIPE_SZ, _LOG_PIPE_BYTES)
    try:
        pid = _fork_keeper(plan, log_write, report_write)
    except OSError as error:
        os.close(log_read)
        os.close(report_read)
        raise CannotFork(f"no child could be forked: {error}") from error
    finally:
        os.close(log_write)
        os.close(report_write)
    return Child(pid, log_read, report_read, plan.walls)


def _fork_keeper(plan: Plan, log: int, report: int) -> int:
    """Fork the keeper, as process 1 of a new pid namespace where the host has them."""
    if not plan.walls.host.namespaces:
        return os.fork() or _leave(lambda: _keep(plan, log, report), report)
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        namespaces.unshare(namespaces.CLONE_NEWPID)
        try:
            return os.fork() or _leave(lambda: _keep(plan, log, report), report)
        finally:
            namespaces.enter_pid_namespace(own)
    finally:
        os.close(own)


def _leave(body: Callable[[], None], report: int) -> int:
    """Run the body of a forked process and end it, whatever happens: it must never return into the supervisor."""
    status = 1
    try:
        body()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except OSError as error:
        _say(report, str(error))
    except BaseException:  # noqa: BLE001  the last frame of this process; it is told, then the process ends
        traceback.print_exc()
    finally:
        os._exit(status)


def _say(report: int, line: str) -> None:
    os.write(report, (" ".join(line.split())[:500] + "\n").encode())


def _keep(plan: Plan, log: int, report: int) -> None:
    """The keeper: make the child, wait for its end, report it, end all that is left."""
    namespaced = plan.walls.host.namespaces
    # Process 1 ignores SIGTERM from inside its namespace; elsewhere it is how the keeper is told to sweep.
    awaited = {signal.SIGCHLD} if namespaced else {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    confine.die_with_parent(signal.SIGKILL if namespaced else signal.SIGTERM)
    needed = (*plan.keep, plan.files) if plan.files is not None else plan.keep
    _settle_descriptors(log, (report, *(kept.fileno() for kept in needed)))
    poll = select.poll()
    poll.register(report, 0)
    if poll.poll(0):
        return  # the supervisor ended before its death could be noticed
    os.setsid()
    _join_cgroup(plan.walls.host.pids_cgroup)
    if namespaced:
        number = int(os.readlink("/proc/self"))  # `/proc` is still the supervisor's here: ours alone
        confine.enter_namespaces(plan.walls, plan.files)
        if plan.walls.shared_memory:
            namespaces.continue_pids_after(number)
    else:
        confine.become_subreaper()
        confine.fill_scratch(plan.walls, plan.files)
    if plan.files is not None:
        plan.files.close()
    pid = os.fork()
    if pid == 0:
        _leave(lambda: _be_child(plan, report), report)
    for kept in plan.keep:
        kept.close()
    _await_end(pid, report, awaited)
    if not namespaced:
        processes.kill_tree(os.getpid())
        _reap_all()


def _await_end(pid: int, report: int, awaited: set[signal.Signals]) -> None:
    """Until the child ends (then say how) or we are told to end it."""
    while True:
        for ended, status in _reap_all():
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
                _say(report, f"signalled {-code}" if code < 0 else f"exited {code}")
                return
        if signal.sigwait(awaited) == signal.SIGTERM:
            return


def _reap_all() -> Iterable[tuple[int, int]]:
    """The children that have ended, with their wait status."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _be_child(plan: Plan, report: int) -> None:
    """The child: put up the walls, say so, and run its body."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.setsid()
    Path("/proc/self/oom_score_adj").write_text(str(plan.walls.limits.oom_score_adj))
    confine.confine(plan.walls)
    confine.die_with_parent()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- the stream of the whole process
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115 -- the stream of the whole process
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115 -- the stream of the whole process
    faulthandler.enable(2)
    _say(report, "begun")
    try:
        if plan.warm is not None:
            with contextlib.suppress(Exception):
                plan.warm()
            _say(report, "warm")
        os.close(report)
        plan.body()
    except Exception:  # noqa: BLE001  told in its log; status 1 tells the supervisor
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _settle_descriptors(log: int, keep: Iterable[int]) -> None:
    """Nothing on 0, the log on 1 and 2, and no other descriptor of the supervisor but those to keep."""
    signal.set_wakeup_fd(-1)
    asyncio._set_running_loop(None)  # pyright: ignore[reportPrivateUsage]  # the loop stays in the parent
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    first = 3
    for descriptor in sorted(keep):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, 1 << 20)


def _join_cgroup(folder: str) -> None:
    """Enter a pids cgroup of our own, named by our number in the supervisor's eyes."""
    if not folder:
        return
    own = _cgroup(folder, os.readlink("/proc/self"))  # `/proc` is still the supervisor's here
    own.mkdir(exist_ok=True)
    (own / "pids.max").write_text(str(confine.PIDS_LIMIT))
    (own / "cgroup.procs").write_text("0")


def _cgroup(folder: str, keeper_pid: int | str) -> Path:
    return Path(folder, f"kernelgate-{keeper_pid}")


def _moved(pipe: int, capture: Capture) -> bool:
    """Move what is there, at most about a pipe full; False at the end of the stream."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(_LOG_MOVES):
            if not capture.take(pipe):
                return False
    return True


def _pump(descriptor: int, take: Callable[[bytes], None]) -> bool:
    """Read what is there, at most a pipe full; False at the end of the stream."""
    if descriptor < 0:
        return False
    for _ in range(_LOG_PIPE_BYTES // _READ_BYTES):
        try:
            chunk = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        take(chunk)
    return True

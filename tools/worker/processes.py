"""Processes as `/proc` shows them: a tree below one, stopped, continued or killed as a whole."""

import os
import signal
import time
from pathlib import Path
from typing import Final

_ROUNDS: Final = 200
"""A tree that forks faster than it is stopped is met again so many times; each round stops all that it finds."""
_STOP_WAIT_S: Final = 0.5
_PROCESS_CLOCK: Final = 2
"""`CPUCLOCK_SCHED`: with the complement of a process id above it, the clock of what that process ran."""
_EXITING: Final = 0x4
"""PF_EXITING in the kernel's flags of a task."""


def children(pid: int) -> list[int]:
    """Direct children, oldest first; empty if the process is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(word) for word in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    except (OSError, ValueError):
        return found
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one, not itself. A process whose parent died hangs below the nearest subreaper."""
    found: list[int] = []
    waiting = children(pid)
    while waiting:
        child = waiting.pop()
        found.append(child)
        waiting += children(child)
    return found


def busy_ns(pid: int, *, own: bool) -> int:
    """Processor time of all below a process so far, those that have ended and were reaped too; with `own`, of it too.

    Of living ones to the nanosecond, of reaped ones to the tick.
    """
    total = 0
    for member in (pid, *descendants(pid)):
        try:
            if own or member != pid:
                total += time.clock_gettime_ns((~member << 3) | _PROCESS_CLOCK)
            fields = Path(f"/proc/{member}/stat").read_text(errors="replace").rpartition(")")[2].split()
            total += (int(fields[13]) + int(fields[14])) * 10**9 // os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            continue  # it ended while we looked: its parent has its time, or soon will
    return total


def main_thread_ns(pid: int) -> int:
    """Processor time of a process's first thread so far; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def state(pid: int) -> str:
    """The state letter (`R`, `S`, `T`, `Z`, …); `X` for a process that is ending or gone.

    The first thread of a process may end before the others: then the state is theirs, `T` only if all stand still.
    """
    first = _task_state(f"/proc/{pid}/stat")
    if first not in "ZX":
        return first
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return "X"
    alive = [letter for thread in threads if (letter := _task_state(f"/proc/{pid}/task/{thread}/stat")) not in "ZX"]
    return next((letter for letter in alive if letter not in "Tt"), alive[0] if alive else first)


def _task_state(path: str) -> str:
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return "X"
    fields = text.rpartition(")")[2].split()
    return "X" if int(fields[6]) & _EXITING and fields[0] != "Z" else fields[0]


def send_signal(pid: int, number: signal.Signals) -> None:
    """Signal a process; one that is gone already is none of our concern."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def stop_tree(pid: int) -> bool:
    """Stop all below a process, until nothing new turns up and all stand still; False if some still run.

    Takes well under a millisecond for one process; waits at most half a second.
    """
    deadline_s = time.monotonic() + _STOP_WAIT_S
    while time.monotonic() < deadline_s:
        tree = descendants(pid)
        moving = [member for member in tree if state(member) not in "TtZX"]
        if not moving:
            return True
        for member in moving:
            send_signal(member, signal.SIGSTOP)
    return False


def continue_tree(pid: int) -> None:
    """Let all below a process run again."""
    for member in descendants(pid):
        send_signal(member, signal.SIGCONT)


def kill_tree(pid: int) -> None:
    """Kill all below a process: first stopped, so that nothing forks away while the rest is being killed."""
    for _ in range(_ROUNDS):
        tree = [member for member in descendants(pid) if state(member) not in "ZX"]
        if not tree:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for member in tree:
                send_signal(member, number)


def kill_with_tree(pid: int) -> None:
    """Kill a process and all below it."""
    send_signal(pid, signal.SIGSTOP)
    kill_tree(pid)
    send_signal(pid, signal.SIGKILL)


def thread_count() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))

"""Who works on a job: a process id and when that process started, since ids are used again."""

import contextlib
import os
from pathlib import Path

from kernelgate.budget.records import Owner


def start_time_s(pid: int) -> float | None:
    """When a process started, in seconds after boot; None if there is no such process."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The command name may hold spaces and brackets: fields are counted from its last bracket.
        ticks = int(stat.rpartition(")")[2].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")
    return None


def this_process() -> Owner:
    """The owner that this server writes into its jobs."""
    pid = os.getpid()
    return Owner(pid=pid, start_s=start_time_s(pid) or 0.0)


def is_alive(pid: int, start_s: float) -> bool:
    """Whether that very process still runs."""
    found = start_time_s(pid)
    return found is not None and abs(found - start_s) < 0.5

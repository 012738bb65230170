"""Who works on a job: a process id and when that process started, since ids are used again."""

import contextlib
import os
from pathlib import Path
from typing import Final

from kernelgate.budget.records import Owner

ENDED: Final = ("Z", "X")
"""States of a process that has ended and that its parent has not asked for yet: it does nothing any more."""


def start_time_s(pid: int) -> float | None:
    """When a process started, in seconds after boot; None if there is no such process or it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The command name may hold spaces and brackets: fields are counted from its last bracket.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in ENDED else int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return None


def this_process() -> Owner:
    """The owner that this server writes into its jobs."""
    pid = os.getpid()
    return Owner(pid=pid, start_s=start_time_s(pid) or 0.0)


def is_alive(pid: int, start_s: float) -> bool:
    """Whether that very process still runs; one that was killed and not reaped does not."""
    found = start_time_s(pid)
    return found is not None and abs(found - start_s) < 0.5

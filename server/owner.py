"""Who works on a job: a process id, when that process started, since ids are used again, and where the id counts.

Servers in two containers may share one ledger. To each of them the other's process ids mean somebody else or nobody, so
an owner from elsewhere is judged by its heartbeats.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from kernelgate.budget.records import Owner

ENDED: Final = ("Z", "X")
"""States of a process that has ended and that its parent has not asked for yet: it does nothing any more."""
QUIET_LIMIT_S: Final = 300.0
"""An owner from elsewhere without a heartbeat for so long is dead: ten times the longest pause between two, more than
a ledger locked for a minute or a busy host delays one. Clocks must agree within that."""


def start_time_s(pid: int) -> float | None:
    """When a process started, in seconds after boot; None if there is no such process or it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The command name may hold spaces and brackets: fields are counted from its last bracket.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in ENDED else int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return None


def this_place() -> str:
    """Where process ids mean what they mean here: this boot of the kernel and this pid namespace; empty if unknown."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def this_process() -> Owner:
    """The owner that this server writes into its jobs."""
    pid = os.getpid()
    return Owner(pid=pid, start_s=start_time_s(pid) or 0.0, place=this_place())


def is_alive(owner: Owner, quiet_s: float) -> bool:
    """Whether that very process still runs; one that was killed and not reaped does not.

    Args:
        owner: who works on a job.
        quiet_s: since its last sign of life, by the wall clock; below zero where clocks do not agree.
    """
    if not owner.place or owner.place != this_place():
        return quiet_s < QUIET_LIMIT_S
    found = start_time_s(owner.pid)
    return found is not None and abs(found - owner.start_s) < 0.5

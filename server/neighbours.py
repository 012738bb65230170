"""Other people's processes on a GPU while something is measured: they slow it down, and no clock of ours would say why.

Asked here and not in the supervisor: with NVML kept open there no call began any more on an H200 host, most likely for
a thread of NVML's own, and a process with a second thread must not fork.
"""

import os
import time
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import JsonValue

from kernelgate.server.gpus import GpuProcess, list_processes
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker.lease import Lease
from kernelgate.tools.worker.processes import descendants

EVERY_S: Final = 0.25
"""Asking takes some milliseconds."""
MOST: Final = 8
"""So many are named."""


class Watch:
    """Of one call on one GPU. On the CPU device it sees nobody."""

    def __init__(self, device: DeviceRef) -> None:
        """Nobody seen yet."""
        self._device = device
        self._asked_s = 0.0
        self._seen: dict[int, int] = {}

    def look(self) -> None:
        """Note who is there now; at most once in `EVERY_S`."""
        now_s = time.monotonic()
        if self._device.kind != "cuda" or now_s - self._asked_s < EVERY_S:
            return
        self._asked_s = now_s
        lease = Lease(self._device.uid)
        # A call that began or ended meanwhile was somebody's all the same: ours are those of before and after.
        before = lease.read()
        found = [process for process in list_processes() if process.index == self._device.index]
        after = lease.read()
        roots = {os.getpid()}
        for note in (before, after):
            known = (*note.residents, *((note.holder,) if note.holder is not None else ()))
            roots |= {process.pid for process in known if process.alive}
        self._seen |= foreign(found, roots)

    def told(self) -> dict[str, JsonValue]:
        """What goes into the observation."""
        if not self._seen:
            return {}
        processes: list[JsonValue] = [{"pid": pid, "memory_mib": mib} for pid, mib in sorted(self._seen.items())[:MOST]]
        return {"foreign_processes": processes}


def foreign(found: Sequence[GpuProcess], roots: Iterable[int]) -> dict[int, int]:
    """Process id → MiB of those that are none of the roots and hang below none.

    A number that `/proc` does not know belongs to another container: it could be one of ours under another number, so
    it is left out.
    """
    ours = {pid for root in roots for pid in (root, *descendants(root))}
    return {one.pid: one.memory_mib for one in found if one.pid not in ours and os.path.exists(f"/proc/{one.pid}")}

"""Other people's processes on a GPU: they slow down what is measured, and no clock of ours would say why."""

import importlib
import os
from collections.abc import Iterable
from typing import Any, Final

from pydantic import JsonValue

from kernelgate.tools.worker import processes
from kernelgate.tools.worker.lease import Process

MOST: Final = 8
"""So many are named."""


class Neighbours:
    """Lists foreign compute processes of one device through NVML; of none where NVML cannot be asked."""

    def __init__(self, device_uid: str) -> None:
        """Starts NVML, which touches no context of CUDA, and keeps it."""
        self._handle: Any = None
        try:
            self._nvml: Any = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(device_uid)
        except Exception:  # noqa: BLE001  no package, no driver, no such device: there is nobody to be seen
            self._handle = None

    def foreign(self, residents: Iterable[Process]) -> dict[int, JsonValue]:
        """Process id → memory in MiB of compute processes that are not ours.

        Ours are this process, what hangs below it, and the referees and spares that leases list as residents, of
        whatever server. A number that `/proc` does not know belongs to another container: it could be one of ours
        under another number, so it is left out.
        """
        if self._handle is None:
            return {}
        try:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return {}
        roots = [os.getpid(), *(process.pid for process in residents if process.alive)]
        ours = {pid for root in roots for pid in (root, *processes.descendants(root))}
        return {
            int(one.pid): (one.usedGpuMemory or 0) >> 20
            for one in found
            if one.pid not in ours and os.path.exists(f"/proc/{one.pid}")
        }


def told(seen: dict[int, JsonValue]) -> JsonValue:
    """For an observation."""
    return [{"pid": pid, "memory_mib": mib} for pid, mib in sorted(seen.items())[:MOST]]

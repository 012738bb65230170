"""The GPU's memory and state, as the referee sees them."""

import contextlib
import functools
import importlib
from typing import Any, Final

import torch
from pydantic import JsonValue

ROOM_SHARE: Final = 1.5
"""Of what a candidate will need, for what it needs beside it."""


def leave_room(needed_bytes: int) -> None:
    """Give memory that torch keeps for later back to the device, where another process would run out without it."""
    free, _ = torch.cuda.mem_get_info()
    if free < ROOM_SHARE * needed_bytes:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def observe(uuid: str, *, shortly: bool = False) -> dict[str, JsonValue]:
    """Clocks, temperature, power and what slows the device down now; empty where NVML cannot be asked.

    `shortly`: only the multiprocessors' clock and what slows them down, in half the time.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return {}
    seen: dict[str, JsonValue] = {}
    with contextlib.suppress(nvml.NVMLError):  # an older driver may not answer each question
        handle = _nvml_handle(uuid)
        seen["sm_clock_mhz"] = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        seen["throttle_reasons"] = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        if shortly:
            return seen
        seen["memory_clock_mhz"] = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
        seen["temperature_c"] = int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        seen["power_w"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return seen


@functools.cache
def _nvml_handle(uuid: str) -> Any:
    """Opened once in a process, for good: it takes as long as a quick timing's blocks, and the lease runs meanwhile."""
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit()
    return nvml.nvmlDeviceGetHandleByUUID(uuid)

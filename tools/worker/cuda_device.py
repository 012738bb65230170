"""The GPU's memory and state, as the referee sees them."""

import contextlib
import functools
import importlib
from typing import Any, Final

import torch
from pydantic import JsonValue

from kernelgate.tasks.model import Precision
from kernelgate.tools.kit.evidence import DeviceShape
from kernelgate.tools.worker.cuda_driver import CUDA_DEVICE
from kernelgate.tools.worker.cuda_timing import cache_bytes
from kernelgate.tools.worker.sizing import Sizes

COLD_SHARE: Final = 2
"""Inputs of so many times the cache: none is still there when its turn comes again."""
MOST_COLD_ENTRIES: Final = 8
TENSOR_CORE_TYPES: Final = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
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


def shape_of(target: str) -> DeviceShape:
    """This process's device; `target`: its architecture, `sm_90`."""
    cuda: Any = torch.cuda  # it has no type for the properties
    seen = cuda.get_device_properties(CUDA_DEVICE)
    # Two transfers a clock; kHz times bits.
    dram_gb_s = 2 * int(seen.memory_clock_rate) * int(seen.memory_bus_width) / 8 / 1e6
    return DeviceShape(
        target=target, multiprocessors=int(seen.multi_processor_count), cache_bytes=int(seen.L2_cache_size),
        dram_gb_s=dram_gb_s,
    )  # fmt: skip


def cold_entries(sizes: Sizes) -> int:
    """How many inputs to take turns with, so that each comes from memory and not from the cache."""
    return max(1, min(MOST_COLD_ENTRIES, -(-COLD_SHARE * cache_bytes() // max(1, sizes.inputs_bytes))))


def tensor_cores_serve(sizes: Sizes, precision: Precision) -> bool:
    """Whether the task multiplies matrices in a type that tensor cores take under its precision policy."""
    return sizes.flops > 0 and (sizes.dtype in TENSOR_CORE_TYPES or precision == "tf32")

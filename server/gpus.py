"""The NVIDIA GPUs of this host as NVML tells them, and which one a wish means. No torch, no CUDA context."""

import contextlib
from collections.abc import Generator, Sequence
from typing import Any, Final

from kernelgate.tasks.model import Frozen

EXCLUSIVE: Final = (
    "it is in {mode} mode, and a measurement takes two processes on it: nvidia-smi -i {index} -c DEFAULT (as root) "
    "allows them"
)
MIG: Final = "it is in MIG mode, which kernelgate does not measure on: use a GPU without it"


class Gpu(Frozen):
    """One NVIDIA GPU."""

    uuid: str
    name: str
    target: str
    """Architecture, such as sm_90."""
    driver: str
    problem: str = ""
    """Why nothing can be measured on it; empty if it can."""


class GpuProcess(Frozen):
    """A process that computes on a GPU of this host, whosever it is."""

    index: int
    """Of the GPU, in CUDA order."""
    pid: int
    memory_mib: int
    """0 where the driver does not tell."""


class NoSuchDevice(Exception):
    """The device that was asked for is not in this host, or cannot be used: one sentence with what there is."""


def list_gpus() -> tuple[Gpu, ...]:
    """All of this host in CUDA order; none without a driver. Raises `pynvml.NVMLError` where one does not answer."""
    with _nvml() as nvml:
        if nvml is None:
            return ()
        return tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def list_processes() -> tuple[GpuProcess, ...]:
    """Who computes on the GPUs of this host now; nobody without a driver, or where a GPU does not tell."""
    found: list[GpuProcess] = []
    with _nvml() as nvml:
        if nvml is None:
            return ()
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):  # one that is lost must not hide who is on the others
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                found += [
                    GpuProcess(index=index, pid=one.pid, memory_mib=(one.usedGpuMemory or 0) >> 20)
                    for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                ]
    return tuple(found)


def chosen(wish: str, gpus: Sequence[Gpu]) -> tuple[int, Gpu]:
    """The GPU of a wish with its index: `cuda` (the first), `cuda:1`, or a UUID; empty: the first that can be used.

    Raises `NoSuchDevice`.
    """
    if not gpus:
        raise NoSuchDevice(f"device {wish!r} is not here: this host has no NVIDIA GPU (kernelgate doctor says why).")
    kind, _, number = wish.partition(":")
    fitting = [
        (index, gpu)
        for index, gpu in enumerate(gpus)
        if not wish or wish == gpu.uuid or (kind == "cuda" and index == int(number or 0))
    ]
    if not fitting:
        there = ", ".join(f"cuda:{index} ({gpu.name}, {gpu.uuid})" for index, gpu in enumerate(gpus))
        raise NoSuchDevice(f"device {wish!r} is not here: this host has {there}. Use one of them, or cpu.")
    for index, gpu in fitting:
        if not gpu.problem:
            return index, gpu
    index, gpu = fitting[0]
    raise NoSuchDevice(f"device cuda:{index} cannot be used: {gpu.problem}.")


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        target=f"sm_{major}{minor}",
        driver=nvml.nvmlSystemGetDriverVersion(),
        problem=_problem(nvml, handle, index),
    )


def _problem(nvml: Any, handle: Any, index: int) -> str:
    modes = {
        nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive-process",
        nvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    }
    with contextlib.suppress(nvml.NVMLError):  # not every device has such a mode
        if nvml.nvmlDeviceGetMigMode(handle)[0]:
            return MIG
    with contextlib.suppress(nvml.NVMLError):  # as above
        if mode := modes.get(nvml.nvmlDeviceGetComputeMode(handle)):
            return EXCLUSIVE.format(mode=mode, index=index)
    return ""


@contextlib.contextmanager
def _nvml() -> Generator[Any]:
    """NVML while it is needed, or None where there is no driver."""
    import pynvml  # type: ignore[import-untyped]  # imported here: a server without a GPU never needs it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()

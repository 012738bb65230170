"""The NVIDIA GPUs of this host as NVML tells them, and which one a wish means. No torch, no CUDA context.

`list_gpus` is the one place that knows what may be measured on: everything else asks it, and reads `Gpu.problem`.
"""

import contextlib
import os
from collections.abc import Generator, Sequence
from typing import Any, Final

from kernelgate.server.installed import torch_cuda
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import ToolMistake

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"

EXCLUSIVE: Final = (
    "it is in {mode} mode, and a measurement takes two processes on it: nvidia-smi -i {index} -c DEFAULT (as root) "
    "allows them"
)
MIG: Final = "it is in MIG mode, which kernelgate does not measure on: use a GPU without it"
LOST: Final = (
    "NVIDIA's driver gets no answer from it ({error}): nvidia-smi says more, often a restart of the host mends it"
)
SILENT: Final = "NVIDIA's driver does not answer ({error}): nvidia-smi says more, often a restart of the host mends it"
NO_CUDA: Final = "the torch that is installed is built without CUDA: install its CUDA build"


class Gpu(Frozen):
    """One NVIDIA GPU. What one that does not answer could not tell is empty, and so names nothing."""

    uuid: str = ""
    name: str = "a GPU that does not answer"
    target: str = ""
    """Architecture, such as sm_90."""
    driver: str = ""
    number: int = 0
    """NVML's, among all of this host."""
    problem: str = ""
    """Why nothing can be measured on it; empty if it can."""


class GpuProcess(Frozen):
    """A process that computes on a GPU of this host, whosever it is."""

    index: int
    """Of the GPU, in CUDA order."""
    pid: int
    memory_mib: int
    """0 where the driver does not tell."""


class NoSuchDevice(ToolMistake):
    """The device that was asked for is not in this host, or cannot be used: one sentence with what there is."""


def list_gpus() -> tuple[Gpu, ...]:
    """The GPUs that CUDA would show this process, in its order; none without a driver.

    One that cannot be measured on says why in its `problem`, and hides no other: one that is lost, in MIG mode or for
    one process alone, and each of them where torch is built without CUDA. A driver that does not even count them is
    told as one GPU with a problem.
    """
    everything = _all_gpus()
    return tuple(everything[index] for index in visible(os.environ.get(VISIBLE), everything))


def why_hidden() -> str:
    """What `CUDA_VISIBLE_DEVICES` leaves of this host's GPUs, as half a sentence; empty where it leaves all."""
    setting, everything = os.environ.get(VISIBLE), _all_gpus()
    left = visible(setting, everything)
    if len(left) == len(everything):
        return ""
    return f"{VISIBLE}={setting} leaves {len(left) or 'none'} of {len(everything)} GPU(s)"


def visible(setting: str | None, gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """The indices that a value of `CUDA_VISIBLE_DEVICES` leaves, in its order; all where it is not set.

    Entries are indices, or UUIDs that may be cut short; the first that names no single GPU, or one again, ends the list
    (CUDA C++ Programming Guide, CUDA Environment Variables). Indices are NVML's, by PCI bus: CUDA's own order differs
    only between GPUs of several kinds, and there under `CUDA_DEVICE_ORDER=FASTEST_FIRST`.
    """
    if setting is None:
        return tuple(range(len(gpus)))
    left: list[int] = []
    for entry in map(str.strip, setting.split(",")):
        named = [
            index
            for index, gpu in enumerate(gpus)
            if entry == str(index) or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))
        ]
        if len(named) != 1 or named[0] in left:
            break
        left += named
    return tuple(left)


def list_processes() -> tuple[GpuProcess, ...]:
    """Who computes on the GPUs of `list_gpus` now; nobody without a driver, or where a GPU does not tell."""
    found: list[GpuProcess] = []
    gpus = list_gpus()
    if not any(gpu.uuid for gpu in gpus):
        return ()
    nvml = _library()
    with _started(nvml):
        for index, gpu in enumerate(gpus):
            with contextlib.suppress(nvml.NVMLError):  # one that is lost must not hide who is on the others
                handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                found += [
                    GpuProcess(index=index, pid=one.pid, memory_mib=(one.usedGpuMemory or 0) >> 20)
                    for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                ]
    return tuple(found)


def chosen(wish: str, gpus: Sequence[Gpu], hidden: str = "") -> tuple[int, Gpu]:
    """The GPU of a wish with its index: `cuda` (the first that can be used), `cuda:1`, or a UUID.

    Args:
        wish: the device by name.
        gpus: of `list_gpus`.
        hidden: of `why_hidden`.

    Raises `NoSuchDevice`.
    """
    if not gpus:
        why = hidden or "this host has no NVIDIA GPU"
        raise NoSuchDevice(f"device {wish!r} is not here: {why} (kernelgate doctor says more). Use cpu.")
    kind, _, number = wish.partition(":")
    fitting = [
        (index, gpu)
        for index, gpu in enumerate(gpus)
        if wish in ("cuda", gpu.uuid) or (kind == "cuda" and number.isdecimal() and int(number) == index)
    ]
    for index, gpu in fitting:
        if not gpu.problem:
            return index, gpu
    usable = " or ".join([*(f"cuda:{index}" for index, gpu in enumerate(gpus) if not gpu.problem), "cpu"])
    if fitting:
        raise NoSuchDevice(f"{unusable(fitting)}. Use {usable}.")
    there = ", ".join(
        f"cuda:{index} ({gpu.name}{', ' if gpu.uuid else ''}{gpu.uuid})" for index, gpu in enumerate(gpus)
    )
    raise NoSuchDevice(
        f"device {wish!r} is not here: this host has {there}{'; ' if hidden else ''}{hidden}. Use {usable}."
    )


def unusable(gpus: Sequence[tuple[int, Gpu]]) -> str:
    """What is wrong with GPUs of these indices, without the last full stop; empty if nothing is."""
    problems = dict.fromkeys(gpu.problem for _, gpu in gpus if gpu.problem)
    named = {each: ", ".join(f"cuda:{index}" for index, gpu in gpus if gpu.problem == each) for each in problems}
    return "; ".join(f"{names} cannot be used: {each}" for each, names in named.items())


def _all_gpus() -> tuple[Gpu, ...]:
    """All of this host by PCI bus, whatever `CUDA_VISIBLE_DEVICES` says."""
    nvml = _library()
    try:
        with _started(nvml):
            count, driver = nvml.nvmlDeviceGetCount(), nvml.nvmlSystemGetDriverVersion()
            build = torch_cuda() if count else None
            return tuple(_gpu(nvml, index, driver, NO_CUDA if build == "" else "") for index in range(count))
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return ()
    except nvml.NVMLError as error:
        return (Gpu(problem=SILENT.format(error=error)),)


def _gpu(nvml: Any, index: int, driver: str, problem_of_all: str) -> Gpu:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        return Gpu(
            uuid=nvml.nvmlDeviceGetUUID(handle),
            name=nvml.nvmlDeviceGetName(handle),
            target=f"sm_{major}{minor}",
            driver=driver,
            number=index,
            problem=_problem(nvml, handle, index) or problem_of_all,
        )
    except nvml.NVMLError as error:
        return Gpu(driver=driver, number=index, problem=LOST.format(error=error))


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


def _library() -> Any:
    import pynvml  # type: ignore[import-untyped]  # imported here: a server without a GPU never needs it

    return pynvml


@contextlib.contextmanager
def _started(nvml: Any) -> Generator[None]:
    """NVML while it is needed; raises its error where the driver is absent or does not answer."""
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()

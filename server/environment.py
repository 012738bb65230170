"""What a measurement depends on, read without importing torch: device, driver, versions, the harness itself."""

import contextlib
import hashlib
import os
import platform
from pathlib import Path

from pydantic import JsonValue

import kernelgate.tools
from kernelgate.budget.model import Amount
from kernelgate.budget.records import Environment
from kernelgate.server.gpus import chosen, list_gpus, unusable, why_hidden
from kernelgate.server.installed import package_version
from kernelgate.tasks.model import Precision
from kernelgate.tools.kit.build_tools import find_build_tools
from kernelgate.tools.kit.wire import DeviceRef


def device_of(wish: str, *, threads: int, target: str) -> DeviceRef:
    """The device of a wish: `cpu`, or a GPU as `gpus.chosen` takes it; empty: the first usable GPU, else the CPU.

    Raises `NoSuchDevice`.
    """
    gpus = () if wish == "cpu" else list_gpus()
    if wish == "cpu" or not (wish or any(not gpu.problem for gpu in gpus)):
        return DeviceRef(kind="cpu", target=target, threads=threads)
    index, gpu = chosen(wish or "cuda", gpus, why_hidden())
    return DeviceRef(kind="cuda", index=index, number=gpu.number, uid=gpu.uuid, target=gpu.target, threads=threads)


def why_on_cpu(wish: str) -> str:
    """Why no wish means the CPU although there is a GPU, as a sentence; empty otherwise."""
    gpus = () if wish else list_gpus()
    if not gpus or any(not gpu.problem for gpu in gpus):
        return ""
    return f"On the CPU, because {unusable(list(enumerate(gpus)))}."


def device_amount(device: DeviceRef, seconds: float, *, calls: int, work_s: float = 0.0) -> Amount:
    """Seconds of a device in the unit that it is paid in."""
    seconds = max(0.0, seconds)
    if device.kind == "cuda":
        return Amount(calls=calls, gpu_s=seconds, work_s=work_s)
    return Amount(calls=calls, cpu_s=seconds, work_s=work_s)


def cpu_model() -> str:
    """The processor's name."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def harness_digest() -> str:
    """SHA-256 over the modules that judge or time, so that a changed harness is another environment."""
    digest = hashlib.sha256()
    for root in sorted(kernelgate.tools.__path__):
        for path in sorted(Path(root).resolve().rglob("*.py")):
            digest.update(path.relative_to(Path(root).resolve()).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def environment_of(device: DeviceRef, precision: Precision, harness: str) -> Environment:
    """The environment of a run on a device under a precision policy."""
    facts: dict[str, JsonValue] = {
        "device": device.kind,
        "threads": device.threads,
        "torch": package_version("torch"),
        "triton": package_version("triton"),
        "python": platform.python_version(),
        "harness": harness[:16],
        "precision": precision,
    }
    if device.kind == "cuda":
        gpu = next((gpu for gpu in list_gpus() if gpu.uuid == device.uid), None)
        facts |= {"uuid": device.uid, "name": gpu.name if gpu else "", "driver": gpu.driver if gpu else ""}
    else:
        facts |= {"name": cpu_model()}
    return Environment(facts=facts)


def target_of(device: DeviceRef, harness: str) -> Environment:
    """What a build depends on: the architecture and the compilers, not the device.

    On a GPU the programs that build inline C++ and CUDA count: one that is installed or replaced makes another target,
    so that what failed for want of it is tried again.
    """
    facts: dict[str, JsonValue] = {
        "target": device.target,
        "device": device.kind,
        "torch": package_version("torch"),
        "triton": package_version("triton"),
        "harness": harness[:16],
    }
    if device.kind == "cuda":
        facts |= {name: _identity(path) for name, path in find_build_tools().items()}
    return Environment(facts=facts)


def _identity(program: str) -> str:
    """A program's real path, in which its version often stands, and its size; `absent` without one."""
    if not program:
        return "absent"
    real = os.path.realpath(program)
    with contextlib.suppress(OSError):  # it went away meanwhile
        return f"{real}, {os.path.getsize(real)} bytes"
    return "absent"

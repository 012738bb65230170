"""The parts of a real supervisor: torch and all worker and tool modules imported once, before the first fork.

Children are walled off from this package's folders, so nothing of it may be imported later.
"""

import contextlib
import importlib
import importlib.metadata
import os
import pkgutil
import socket
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from pydantic import JsonValue

import kernelgate.tools.kit
import kernelgate.tools.worker
from kernelgate.tools.kit.catalogue import find_tools
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import fake_cuda, triton_launchers
from kernelgate.tools.worker.parts import Versions
from kernelgate.tools.worker.sealed import Sealed

_CUDA_IN_USE: Final = "/dev/nvidia-uvm"
"""Opened when CUDA starts; NVML opens others only, which does no harm."""


def preload(device: DeviceRef, shared_cache: Path) -> Versions:
    """Import torch (and on CUDA triton with its key and its bridge to the driver), the worker, the kit and the tools.

    About 6 s of processor.
    """
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch runs without it, and so do we
    triton_version = _installed_version("triton")
    if device.kind == "cuda":
        # Whatever asks at import whether there is a GPU gets its answer without starting CUDA.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        _compute_triton_key()
        _import_what_launches_import()
        _import_all()
        failure = triton_launchers.build_bridge(shared_cache)
        if failure:
            print(f"supervisor: Triton's bridge to the driver is not built ahead: {failure}", file=sys.stderr)  # noqa: T201  its only log
        _refuse_started_cuda()
    else:
        with _absent("triton"):
            _import_all()
    return Versions(torch=str(importlib.import_module("torch").__version__), triton=triton_version)


def _refuse_started_cuda() -> None:
    """Raise RuntimeError where an import has started CUDA in this process: no child of it could use the GPU."""
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            if os.readlink(f"/proc/self/fd/{entry}").startswith(_CUDA_IN_USE):
                raise RuntimeError("an import has started CUDA in the supervisor, so no child of it could use the GPU")


def _compute_triton_key() -> None:
    """Hash Triton's own files and keep the result: 0.4 s that each child would pay otherwise."""
    for place in ("triton.runtime.cache", "triton.compiler.compiler"):  # it has moved between versions
        key = getattr(importlib.import_module(place), "triton_key", None)
        if key is not None:
            key()
            return
    raise ImportError("this version of triton keeps triton_key in another place")


def _import_what_launches_import() -> None:
    """What Triton imports at a first launch: 0.15 s where python may not keep its bytecode."""
    with contextlib.suppress(ImportError):  # other versions launch without it
        importlib.import_module("triton.experimental.gluon.nvidia.hopper")


def _import_all() -> None:
    importlib.import_module("torch")
    for package in (kernelgate.tools.kit, kernelgate.tools.worker):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    fake_cuda.preload_dynamo()
    find_tools()


@contextlib.contextmanager
def _absent(name: str) -> Generator[None]:
    """Have a package look uninstalled for a while.

    On the CPU device a child decides between Triton's interpreter and its compiler before triton is imported for the
    first time, and parts of torch would import it here. They take it for missing and use their C++ back end.
    """
    if name in sys.modules:
        raise RuntimeError(
            f"{name} was imported before the supervisor's own imports, so no child could choose its mode"
        )
    blocked = cast("dict[str, ModuleType | None]", sys.modules)
    blocked[name] = None
    try:
        yield
    finally:
        del blocked[name]


def _installed_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def candidate_serve(conn: socket.socket, start: dict[str, JsonValue]) -> None:
    """The untrusted child: answers the referee until its socket ends."""
    from kernelgate.tools.worker import candidate

    candidate.serve(conn, start)


def candidate_warm() -> None:
    """Start CUDA: 0.2 s."""
    from kernelgate.tools.worker import cuda_driver

    cuda_driver.start_cuda()


def warms_up(device: DeviceRef) -> bool:
    """On a GPU."""
    return device.kind == "cuda"


def referee_serve(control: socket.socket) -> None:
    """The trusted child of the device."""
    from kernelgate.tools.worker import referee

    referee.serve(control)


def builder_serve(control: socket.socket, sealed: Sealed, candidate: socket.socket) -> None:
    """The trusted child of one compile."""
    from kernelgate.tools.worker import builder

    builder.serve_one(control, sealed.read(), candidate)

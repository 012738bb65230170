"""The parts of a real supervisor: torch and all worker and tool modules imported once, before the first fork.

Children are walled off from this package's folders, so nothing of it may be imported later.
"""

import importlib
import importlib.util
import pkgutil
import socket

from pydantic import JsonValue

import kernelgate.tools.kit
import kernelgate.tools.worker
from kernelgate.tools.kit.catalogue import find_tools
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker.parts import Versions


def preload(device: DeviceRef) -> Versions:
    """Import torch (and on CUDA triton with its key), the worker, the kit and the tools. About 3 s."""
    torch = importlib.import_module("torch")
    triton_version = ""
    if device.kind == "cuda":
        triton_version = str(importlib.import_module("triton").__version__)
        importlib.import_module("triton.compiler.compiler").triton_key()  # 0.4 s that each child would pay otherwise
    elif importlib.util.find_spec("triton") is not None:
        # Only looked up: on the CPU device a child decides between interpreter and compiler before it imports triton.
        triton_version = importlib.import_module("importlib.metadata").version("triton")
    for package in (kernelgate.tools.kit, kernelgate.tools.worker):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    find_tools()
    return Versions(torch=str(torch.__version__), triton=triton_version)


def candidate_serve(conn: socket.socket, start: dict[str, JsonValue]) -> None:
    """The untrusted child: answers the referee until its socket ends."""
    from kernelgate.tools.worker import candidate

    candidate.serve(conn, start)


def referee_serve(control: socket.socket) -> None:
    """The trusted child of the device."""
    from kernelgate.tools.worker import referee

    referee.serve(control)


def builder_serve(control: socket.socket, request: dict[str, JsonValue], candidate: socket.socket) -> None:
    """The trusted child of one compile."""
    from kernelgate.tools.worker import builder

    builder.serve_one(control, request, candidate)

"""What a supervisor puts into its children. A tests' module of the same shape replaces this one (`--parts`)."""

import importlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from pydantic import JsonValue

from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker.sealed import Sealed


@dataclass(frozen=True)
class Versions:
    """What was imported before the first fork; empty where it was not needed."""

    torch: str
    triton: str


class Parts(Protocol):
    """The functions that children run, and the imports that they share."""

    def preload(self, device: DeviceRef, shared_cache: Path) -> Versions:
        """Import all that a child will need, once; start no thread, run no torch operation.

        What candidates would each compile alike is put into `shared_cache`, which their caches begin with.
        """
        ...

    def candidate_serve(self, conn: socket.socket, start: dict[str, JsonValue]) -> None:
        """The untrusted child."""
        ...

    def candidate_warm(self) -> None:
        """Done ahead by a candidate's process that waits for its call: what takes long and is the same for all."""
        ...

    def warms_up(self, device: DeviceRef) -> bool:
        """Whether there is anything to be done ahead on this device."""
        ...

    def referee_serve(self, control: socket.socket) -> None:
        """The trusted child of a device, kept between calls."""
        ...

    def builder_serve(self, control: socket.socket, sealed: Sealed, candidate: socket.socket) -> None:
        """The trusted child of one compile."""
        ...


def load_parts(module: str) -> Parts:
    """The parts that a module offers; raises ImportError."""
    found = importlib.import_module(module)
    missing = [
        name
        for name in ("preload", "candidate_serve", "candidate_warm", "warms_up", "referee_serve", "builder_serve")
        if not callable(getattr(found, name, None))
    ]
    if missing:
        raise ImportError(f"{module} offers no {', '.join(missing)}")
    return cast("Parts", found)

"""What a child of the supervisor is to be, and what can become of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kernelgate.tools.worker.confine import Walls
from kernelgate.tools.worker.sealed import Sealed


class CannotFork(Exception):
    """A child could not be made: a fault of ours, in one sentence."""


@dataclass(frozen=True)
class Ended:
    """How a child's own process ended; `signalled` with the number, else `exited` with the status."""

    signalled: bool
    status: int


class Kept(Protocol):
    """What a child inherits: a socket, a sealed request."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


@dataclass(frozen=True)
class Plan:
    """A child to be made."""

    name: str
    walls: Walls
    body: Callable[[], None]
    """Runs in the child behind its walls; the process ends when it returns."""
    keep: tuple[Kept, ...] = ()
    """The only descriptors that the child inherits beside 0, 1 and 2."""
    warm: Callable[[], None] | None = None
    """Runs ahead of the body; where it fails, the body meets the same again and says so."""
    files: Sealed | None = None
    """What it holds of files is put into `candidate/` of its scratch; the child does not inherit it."""

"""What a bench needs beside the candidate: whoever holds the processes, and what outlives the call."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kernelgate.tools.kit.facts import Ceilings
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.stolen import Stolen


class Busy(NamedTuple):
    """Processor time of a candidate since its start, ns; zeros where it is not known."""

    all_ns: int = 0
    """Of all its threads and processes."""
    main_ns: int = 0
    """Of its first thread, which makes the calls."""


class Control(Protocol):
    """Whoever holds the candidate's process, and the client who waits."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """Tell the client how far the call is."""
        ...

    def stop(self) -> Busy:
        """Stop the candidate's process; returns when it stands still, or is gone, how long it was busy so far."""
        ...

    def proceed(self) -> None:
        """Let it run again."""
        ...


@dataclass
class House:
    """What a referee keeps between calls, and the time of this call that the house pays for."""

    held: dict[str, HeldWorkload]
    ceilings: Ceilings | None = None
    house_s: float = 0.0
    surroundings: dict[tuple[str, int, float], float] = field(default_factory=dict[tuple[str, int, float], float])
    """Of timed blocks on a GPU, by workload, number of calls and sleep, µs: the least that a block of nothing took."""
    stolen: Stolen = field(default_factory=Stolen)

    def forget_variants(self) -> None:
        """Drop what a qualification, or an answer that seemed wrong, had the references built as."""
        for held in self.held.values():
            held.forget_variants()

"""Processor time that the host of a virtual machine took for somebody else, as Linux counts it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kernelgate.tools.kit.facts import DeviceState

_STEAL: Final = 7
"""Place in the first line of /proc/stat, behind its name: user, nice, system, idle, iowait, irq, softirq, steal."""
_GUEST: Final = 8
"""What follows is part of user and nice."""


class Stolen:
    """Looks at the counters now and then."""

    def __init__(self, read: Callable[[], str] = lambda: Path("/proc/stat").read_text(encoding="ascii")) -> None:
        """The first look has nothing before it."""
        self._read = read
        self._before: tuple[int, int] | None = None

    def look(self) -> DeviceState | None:
        """The share since the look before, 0 at the first; None where it cannot be told."""
        try:
            words = self._read().split("\n", 1)[0].split()[1:]
            counts = [int(word) for word in words[:_GUEST]]
            now = (counts[_STEAL], sum(counts))
        except (OSError, ValueError, IndexError):
            return None
        before, self._before = self._before or now, now
        stolen, all_of_it = now[0] - before[0], now[1] - before[1]
        return DeviceState(stolen_share=min(1.0, max(0.0, stolen / all_of_it)) if all_of_it > 0 else 0.0)

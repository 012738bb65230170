"""What a candidate prints: the first and the last half of a limit are kept, the middle is counted and dropped.

The supervisor moves it from a pipe into a memory file and reads none of it: candidates are forked from the supervisor,
and what one prints, hidden shapes too, is not for the next.
"""

import fcntl
import os

from kernelgate.tools.kit.wire import LOG_LIMIT_BYTES, KeptLog


class Capture:
    """A bounded log. Memory stays under the limit whatever is printed. Owns a descriptor."""

    def __init__(self, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
        self._half = limit_bytes // 2
        self._written = 0
        self._descriptor = os.memfd_create("log", os.MFD_CLOEXEC)

    def take(self, pipe: int) -> int:
        """Move a piece of what is in a pipe; how many bytes, 0 at its end. Raises BlockingIOError where it is empty."""
        start = self._place(self._written)
        end = self._half if self._written < self._half else 2 * self._half
        moved = os.splice(pipe, self._descriptor, end - start, offset_dst=start, flags=os.SPLICE_F_NONBLOCK)
        self._written += moved
        return moved

    def _place(self, number: int) -> int:
        return number if number < self._half else self._half + number % self._half

    @property
    def kept(self) -> KeptLog:
        """How to read the memory file."""
        return KeptLog(half_bytes=self._half, written_bytes=self._written)

    def fileno(self) -> int:
        """The memory file; -1 after `close`."""
        return self._descriptor

    def copy(self) -> int:
        """A descriptor of the memory file of the caller's own; it is read after the child has ended."""
        return fcntl.fcntl(self._descriptor, fcntl.F_DUPFD_CLOEXEC, 0)

    def text(self) -> str:
        """What is kept; in the supervisor for its own children only. Empty after `close`."""
        return "" if self._descriptor < 0 else text_of(self.kept, self._descriptor)

    def close(self) -> None:
        """Give the memory back; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def text_of(kept: KeptLog, descriptor: int) -> str:
    """What is kept of a log, with a line that says what is not. Bytes that are no UTF-8 become U+FFFD.

    Raises OSError.
    """
    half, written = kept.half_bytes, kept.written_bytes
    head = os.pread(descriptor, min(half, written), 0)
    ring = os.pread(descriptor, min(half, max(0, written - half)), half)
    if not kept.dropped_bytes:
        return (head + ring).decode(errors="replace")
    turn = written % half
    gap = f"\n… {kept.dropped_bytes:,} bytes left out …\n"
    return head.decode(errors="replace") + gap + (ring[turn:] + ring[:turn]).decode(errors="replace")

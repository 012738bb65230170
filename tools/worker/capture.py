"""What a candidate prints: the first and the last half of a limit are kept, the middle is counted and dropped."""

from kernelgate.tools.kit.wire import LOG_LIMIT_BYTES


class Capture:
    """A bounded log. Memory stays under the limit whatever is printed."""

    def __init__(self, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
        self._half = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of output."""
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        excess = len(self._tail) - self._half
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess

    @property
    def dropped_bytes(self) -> int:
        """How much of the middle is gone."""
        return self._dropped

    def text(self) -> str:
        """What is kept, with a line that says what is not. Bytes that are no UTF-8 become U+FFFD."""
        head, tail = bytes(self._head), bytes(self._tail)
        if not self._dropped:
            return (head + tail).decode(errors="replace")
        gap = f"\n… {self._dropped:,} bytes left out …\n"
        return head.decode(errors="replace") + gap + tail.decode(errors="replace")

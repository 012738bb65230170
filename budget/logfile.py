"""SQLite's write-ahead log as a file: whose turn it is to write, and that what was written stays.

`flock` on the log lines up the writers of all processes. SQLite's own locks lie on the other two files and are of
another kind, and the kernel gives the lock back when its holder dies. `fdatasync` on the log makes a commit durable
*after* the turn was passed on: while one writer waits for the disk the next one writes, and one sync serves all.
"""

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Final, Self

FIRST_PAUSE_S: Final = 0.002
"""A few spends long: who comes to a busy book lets the one who writes go on, with warm caches."""
LAST_PAUSE_S: Final = 0.0001
"""Who has waited longest asks most often, and so comes next without a queue that a dead process could block."""
_IMPATIENCE: Final = 0.7
"""Each pause is so much shorter than the one before it: measured best of 0.5 to 1 among eight saturated writers."""
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""What a file system without `flock` says; SQLite's own waiting must do then."""


class LogFile:
    """The log of an open book. Made after SQLite has made the file, closed before SQLite removes it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def of(cls, book: Path) -> Self:
        """The log beside a book; raises OSError."""
        return cls(os.open(f"{os.path.realpath(book)}-wal", os.O_RDONLY | os.O_CLOEXEC))

    def take_turn(self, patience_s: float) -> bool:
        """Wait until no other process of kernelgate writes; False once so many seconds have gone."""
        give_up_s = time.monotonic() + patience_s
        pause_s = FIRST_PAUSE_S
        while not self._taken():
            if time.monotonic() > give_up_s:
                return False
            time.sleep(pause_s)
            pause_s = max(LAST_PAUSE_S, pause_s * _IMPATIENCE)
        return True

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return True

    def pass_turn(self) -> None:
        """Let the next one write."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    def make_durable(self) -> None:
        """Wait until all that stands in the log is on the disk; raises OSError."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)

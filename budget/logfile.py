"""SQLite's write-ahead log as a file: whose turn it is to write, and that what was written stays.

`flock` on the log lines up the writers of all processes. SQLite's own locks lie on the other two files and are of
another kind, and the kernel gives the lock back when its holder dies. `fdatasync` on the log makes a commit durable
*after* the turn was passed on: while one writer waits for the disk the next one writes, and one sync serves all.
"""

import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Final, Self

WITHOUT_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""What a file system without `flock` says; SQLite's own waiting must do then."""


class LogFile:
    """The log of an open book. Made after SQLite has made the file, closed before SQLite removes it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._line: _Line | None = None

    @classmethod
    def of(cls, book: Path) -> Self:
        """The log beside a book; raises OSError."""
        return cls(os.open(f"{os.path.realpath(book)}-wal", os.O_RDONLY | os.O_CLOEXEC))

    def take_turn(self, patience_s: float) -> bool:
        """Wait until no other process of kernelgate writes; False once so many seconds have gone."""
        if self._line is None or not self._line.is_queued:
            if self._taken():
                return True
            self._line = self._line or _Line(self._descriptor)
        return self._line.wait(patience_s)

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        return True

    def pass_turn(self) -> None:
        """Let the next one write."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise

    def is_gone(self) -> bool:
        """Whether somebody removed the file: SQLite would go on writing into it, and all of that end with us."""
        return os.fstat(self._descriptor).st_nlink == 0

    def make_durable(self) -> None:
        """Wait until all that stands in the log is on the disk; raises OSError."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._line is not None:
            self._line.close()
        os.close(self._descriptor)


class _Line:
    """Stands in the kernel's line for a turn on a thread of its own, for `flock` knows no time-out.

    Who gives up leaves the thread standing there: it passes the turn on at once when it comes, or keeps it for whoever
    has come to wait again by then.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)  # the same lock, and not closed under the thread
        self._mutex, self._asked, self._given = threading.Lock(), threading.Lock(), threading.Lock()
        self._asked.acquire()
        self._given.acquire()
        self.is_queued = False
        """The thread stands in line: nobody else may ask on this descriptor, for the two would share the lock."""
        self._is_wanted = False
        self._is_closed = False
        threading.Thread(target=self._stand, name="ledger-turn", daemon=True).start()

    def wait(self, patience_s: float) -> bool:
        """Until the turn has come (True) or so many seconds have gone (False)."""
        with self._mutex:
            self._is_wanted = True
            self._ask()
        if self._given.acquire(timeout=patience_s):
            return True
        with self._mutex:
            self._is_wanted = False
            return self._given.acquire(blocking=False)  # it came at the last moment

    def close(self) -> None:
        """End the thread once it stands in no line."""
        with self._mutex:
            self._is_closed, self._is_wanted = True, False
            self._ask()

    def _ask(self) -> None:
        if not self.is_queued:
            self.is_queued = True
            self._asked.release()

    def _stand(self) -> None:
        while not self._is_closed:
            self._asked.acquire()
            if self._is_closed:
                break
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            with self._mutex:
                self.is_queued = False
                if self._is_wanted:
                    self._is_wanted = False
                    self._given.release()
                else:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

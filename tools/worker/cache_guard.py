"""Caches after a call that showed a candidate hidden inputs: as they were before, so that it left itself no note.

What it added is removed. Where anything else differs (a file gone or changed, a mode, an attribute), which could be a
note too, the caches are to be emptied: what they held is compiled again.
"""

import os
import stat
from pathlib import Path
from typing import Final

MAX_ENTRIES: Final = 20_000
"""A cache with more is emptied rather than looked through."""

_Seen = dict[str, tuple[int, ...]]


class CacheGuard:
    """Remembers a tree of files. The times of change are the kernel's, which no user can set."""

    def __init__(self, root: Path) -> None:
        """As it is now; no link is followed."""
        self.root = root
        self._before = _listing(root)

    def put_back(self) -> bool:
        """Remove what was added; False where that is not enough, and the caches must be emptied.

        To be called when no process of the candidate is alive.
        """
        after = _listing(self.root)
        if self._before is None or after is None:
            return False
        if any(after.get(path) != signature for path, signature in self._before.items()):
            return False
        # Deepest first: a folder is empty when its turn comes.
        for path in sorted(after.keys() - self._before.keys(), key=lambda path: path.count(os.sep), reverse=True):
            if stat.S_ISDIR(after[path][0]):
                os.rmdir(path)
            else:
                os.unlink(path)
        return True


def _listing(root: Path) -> _Seen | None:
    """Path → what must stay the same; None where there is more than can be looked through, or attributes."""
    found: _Seen = {}
    waiting = [str(root)]
    while waiting:
        path = waiting.pop()
        status = os.lstat(path)
        if len(found) >= MAX_ENTRIES or os.listxattr(path, follow_symlinks=False):
            return None
        folder = stat.S_ISDIR(status.st_mode)
        # A folder changes when something is added to it, which is allowed.
        times = (status.st_ino,) if folder else (status.st_ino, status.st_size, status.st_ctime_ns)
        found[path] = (status.st_mode, status.st_uid, *times)
        if folder:
            waiting += [entry.path for entry in os.scandir(path)]
    return found

"""Where candidates keep what they write: a scratch for one call, caches for all calls of one source."""

import asyncio
import contextlib
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelgate.tools.kit.caches import cache_folder
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import processes, triton_launchers
from kernelgate.tools.worker.lease import start_ticks

_SHARED_MEMORY: Final = "/dev/shm"
_REMOVE: Final = 'rm -rf -- "$1" 2>/dev/null || { chmod -R u+rwX -- "$1"; rm -rf -- "$1"; }'
"""A hostile tree may be deep, which `rm` can do, or have folders without permissions, which the second try can."""


_UNLOCKED: Final = "."
"""Begins the name of a scratch that is being made."""


@dataclass(frozen=True)
class Caches:
    """Compile caches of one source: one absolute path on all rungs, as a moved folder compiles again."""

    triton: Path
    inductor: Path
    extensions: Path


def caches_of(state_dir: str, device: DeviceRef, digest: str) -> Caches:
    """What lies in a `cache_folder`."""
    root = cache_folder(state_dir, device, digest)
    return Caches(triton=root / "triton", inductor=root / "inductor", extensions=root / "extensions")


def shared_cache(state_dir: Path) -> Path:
    """What the Triton cache of each new candidate begins with. Children never see it."""
    return state_dir / "cache" / "shared"


def make_caches(caches: Caches, uid: int | None, shared: Path | None = None) -> None:
    """Create them for the user that children run as; caches that another user left are moved aside.

    A new Triton cache begins with what lies in `shared`.
    """
    root = caches.triton.parent
    owner = os.geteuid() if uid is None else uid
    with contextlib.suppress(FileNotFoundError):
        if root.stat().st_uid != owner:
            root.rename(root.with_name(f"{root.name}.other-{os.getpid()}-{start_ticks(os.getpid())}"))
    new = not caches.triton.exists()
    for folder in (root, caches.triton, caches.inductor, caches.extensions):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if uid is not None:
            os.chown(folder, uid, uid)
    if new and shared is not None:
        triton_launchers.copy_bridge(shared, caches.triton, uid)


def shared_memory_names() -> frozenset[str]:
    """What lies in `/dev/shm` now."""
    return frozenset(os.listdir(_SHARED_MEMORY))


def sweep_shared_memory(before: frozenset[str], uid: int) -> None:
    """Remove what the dedicated user of a device has put into `/dev/shm` since.

    What a living child has mapped stays: the referee has the same user, and CUDA its own files there.
    """
    kept = before | _mapped_shared_memory()
    for entry in os.scandir(_SHARED_MEMORY):
        with contextlib.suppress(OSError):  # it went away while we looked
            if entry.name not in kept and entry.stat(follow_symlinks=False).st_uid == uid:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


def _mapped_shared_memory() -> set[str]:
    """Files of `/dev/shm` that a process below this one has mapped."""
    names: set[str] = set()
    for pid in processes.descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it ended
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                _, found, path = line.partition(f"{_SHARED_MEMORY}/")
                if found:
                    names.add(path.split("/")[0])
    return names


class Scratches:
    """The scratch folders of one supervisor. Each is locked for as long as the supervisor lives.

    A lock is seen by supervisors in other containers that share the folder; a process number would not be.
    """

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir / "scratch"
        self._root.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._owner = f"{os.getpid()}-{start_ticks(os.getpid())}"
        self._made = 0
        self._locks: dict[Path, int] = {}
        self.helpers: set[int] = set()
        """Processes that are removing something now."""

    def make(self, uid: int | None) -> Path:
        """A new empty scratch."""
        self._made += 1
        folder = self._root / f"{self._owner}-{self._made}"
        unseen = folder.with_name(f"{_UNLOCKED}{folder.name}")  # until it is locked it looks like an orphan's
        unseen.mkdir(mode=0o700)
        lock = _lock(unseen)
        if lock is None:
            raise OSError(f"the new folder {unseen} cannot be locked")
        unseen.rename(folder)
        self._locks[folder] = lock
        if uid is not None:
            os.chown(folder, uid, uid)
        return folder

    async def remove(self, folder: Path) -> None:
        """Remove a scratch with all in it; cheap where the child had a file system of its own there."""
        if folder in self._locks:
            os.close(self._locks.pop(folder))
        with contextlib.suppress(OSError):
            os.rmdir(folder)
            return
        pid = _start_removal(folder)
        self.helpers.add(pid)
        await _ended(pid)
        self.helpers.discard(pid)

    async def remove_orphans(self) -> None:
        """Remove the scratches of supervisors that are dead."""
        for folder in [found for found in self._root.iterdir() if not found.name.startswith(_UNLOCKED)]:
            lock = _lock(folder)
            if lock is not None:
                await self.remove(folder)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """The descriptor that holds the lock of a folder; None where somebody else has it or there is no such folder.

    Children close what they inherit, so that a lock ends with its supervisor.
    """
    try:
        with contextlib.suppress(PermissionError):
            folder.chmod(0o700)  # a candidate may have shut its own scratch
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _start_removal(folder: Path) -> int:
    return os.posix_spawn("/bin/sh", ["sh", "-c", _REMOVE, "sh", str(folder)], {"PATH": os.defpath})


async def _ended(pid: int) -> None:
    """Wait for a child process without blocking the loop, and reap it."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    descriptor = os.pidfd_open(pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222  it has ended; or we are leaving, and so does it

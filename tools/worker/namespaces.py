"""What root adds to landlock: a mount, pid, network and IPC namespace of its own for a child.

Landlock leaves three doors open that matter when the child has the uid of files that are not its own: `chmod` and the
like, sockets that lie in the file system, and the sight of other processes. So here everything is mounted read-only but
the child's own folders, the folders where sockets and homes lie are covered, and `/proc` is mounted anew.
"""

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
_MS_NOEXEC: Final = 8
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_MOUNT_SETATTR: Final = 442
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_ATTR_RDONLY: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

COVERED: Final = ("/run", "/tmp", "/var/tmp", "/root", "/home", "/media", "/mnt")
"""Homes, and the places where sockets of other services lie; what a child needs from there is bound back in."""


@dataclass(frozen=True)
class Mounts:
    """The file system of a child."""

    scratch: str
    """Becomes a file system of its own in memory; what is in it goes with the child."""
    scratch_limit_mib: int
    writable: tuple[str, ...]
    """Folders that stay writable beside the scratch."""
    needed: tuple[str, ...]
    """What must stay visible although a covered folder holds it."""
    covered: tuple[str, ...]
    """Folders to be covered beside those of every host."""
    private_shm: bool
    """A small `/dev/shm` of its own; not on CUDA, whose IPC uses the shared one."""


def unshare(flags: int) -> None:
    """Leave the namespaces of the parent; raises OSError."""
    if _LIBC.unshare(ctypes.c_int(flags)) != 0:
        raise _error("the namespaces were refused")


def continue_pids_after(number: int) -> None:
    """In process 1 of a pid namespace: give the next process another number than children of other namespaces have.

    CUDA takes a handle whose maker has the number of the process that opens it for one of that process's own. Does
    nothing on a kernel that does not let numbers be chosen.
    """
    with contextlib.suppress(OSError):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number), encoding="ascii")


def enter_pid_namespace(descriptor: int) -> None:
    """Have later children start in the pid namespace of a descriptor; raises OSError."""
    if _LIBC.setns(ctypes.c_int(descriptor), ctypes.c_int(CLONE_NEWPID)) != 0:
        raise _error("the pid namespace could not be entered")


def arrange(mounts: Mounts) -> None:
    """Arrange the mount namespace that this process has just entered, as its process 1. Raises OSError."""
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, None)
    visible = [path for path in (*mounts.needed, *mounts.writable, mounts.scratch) if os.path.exists(path)]
    for folder in (*COVERED, *mounts.covered):
        if os.path.isdir(folder) and not os.path.islink(folder) and folder not in visible:
            _cover(folder, visible)
    for folder in mounts.writable:
        _mount(folder, folder, None, _MS_BIND | _MS_REC, None)
    own_memory = f"mode=700,size={mounts.scratch_limit_mib}m,nr_inodes=100000"
    _mount("kernelgate", mounts.scratch, "tmpfs", _MS_NOSUID | _MS_NODEV, own_memory)
    if mounts.private_shm:
        _mount("kernelgate", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "mode=1777,size=64m")
    else:
        _mount("/dev/shm", "/dev/shm", None, _MS_BIND | _MS_REC, None)
    _set_read_only("/", recursive=True)
    for folder in (*mounts.writable, mounts.scratch, "/dev/shm"):
        _set_writable(folder)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)


def _cover(folder: str, visible: Sequence[str]) -> None:
    """Mount an empty folder over one, and bind back what must stay visible beneath it."""
    kept = _outermost([path for path in visible if path.startswith(folder + "/")])
    sources = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in kept}
    _mount("kernelgate", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m")
    for path, descriptor in sources.items():
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            os.makedirs(path, 0o755, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
            Path(path).touch(0o644)
        _mount(f"/proc/self/fd/{descriptor}", path, None, _MS_BIND | _MS_REC, None)
        os.close(descriptor)


def _outermost(paths: Sequence[str]) -> list[str]:
    """The paths that lie beneath no other of them; a bind of the outer one brings the inner one along."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not kept or not path.startswith(kept[-1] + "/"):
            kept.append(path)
    return kept


def _set_read_only(path: str, *, recursive: bool) -> None:
    _set_attributes(path, _ATTR_RDONLY, 0, _AT_RECURSIVE if recursive else 0)


def _set_writable(path: str) -> None:
    _set_attributes(path, 0, _ATTR_RDONLY, 0)


def _set_attributes(path: str, on: int, off: int, flags: int) -> None:
    attributes = struct.pack("=QQQQ", on, off, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    if _LIBC.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), ctypes.c_uint(flags), attributes, size) != 0:
        raise _error(f"{path} could not be mounted read-only or writable")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    if _LIBC.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data)) != 0:
        raise _error(f"{target} could not be mounted")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")

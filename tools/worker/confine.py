"""The walls around a child: a description made by the supervisor, and the functions that put it up in the child.

A `Host` says what this machine can do (`survey.py` finds out); `Walls` says what one child gets of it.
"""

import ctypes
import os
import resource
import signal
import site
import struct
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kernelgate.tools.worker import landlock, namespaces, seccomp
from kernelgate.tools.worker.landlock import Grant
from kernelgate.tools.worker.sealed import Sealed

CPU_ADDRESS_SPACE_BYTES: Final = 8 << 30
"""RLIMIT_AS of a candidate on the CPU device; CUDA reserves address space in terabytes, so never there."""
SCRATCH_LIMIT_MIB: Final = 1024
PIDS_LIMIT: Final = 512
"""Processes and threads of one candidate: room for a compiler and torch's threads, none for a fork bomb."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_LAST_CAPABILITY: Final = 63
_CAPABILITY_VERSION_3: Final = 0x20080522
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

_SYSTEM: Final = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store")
_ETC: Final = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "passwd", "group", "nsswitch.conf", "localtime",
    "alternatives", "locale.alias", "mime.types", "OpenCL",
)  # fmt: skip
_PROC_FILES: Final = ("cpuinfo", "meminfo", "stat", "version", "filesystems", "devices", "loadavg", "uptime", "sys")
_PLAIN_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class Host:
    """What this machine allows, found out once by `survey`."""

    landlock_abi: int = 0
    seccomp: bool = False
    namespaces: bool = False
    """Mount, pid, network and IPC namespaces with everything read-only; root only."""
    uid: int | None = None
    """Dedicated user of referee and candidates; None: they keep the supervisor's."""
    pids_cgroup: str = ""
    """Folder in which a pids cgroup per child can be made; empty where there is none."""


@dataclass(frozen=True)
class Limits:
    """Resource limits of a child; None leaves what the supervisor has."""

    address_space_bytes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None
    """RLIMIT_NPROC; it counts all processes of the user and never binds uid 0."""
    oom_score_adj: int = 1000
    """Where memory runs out, a child goes and not the house."""


@dataclass(frozen=True)
class Walls:
    """All that holds one child."""

    host: Host
    grants: tuple[Grant, ...]
    scratch: str
    """Private, writable, gone after the call; the child starts in it."""
    writable: tuple[str, ...] = ()
    covered: tuple[str, ...] = ()
    """Seen empty where there are mount namespaces: the state folder, with the ledger and others' caches."""
    limits: Limits = Limits()
    environment: dict[str, str] = field(default_factory=dict[str, str])
    shared_memory: bool = False
    """The host's `/dev/shm` is writable: CUDA needs it."""

    def mounts(self) -> namespaces.Mounts:
        """The same walls as a file system."""
        needed = tuple(grant.path for grant in self.grants)
        return namespaces.Mounts(
            self.scratch, SCRATCH_LIMIT_MIB, self.writable, needed, self.covered, private_shm=not self.shared_memory
        )


def system_grants(
    *, cuda: bool, own_proc: bool, hidden: Sequence[Path], unprivileged: bool = False
) -> tuple[Grant, ...]:
    """Read rights on what any python program needs; nothing beneath a hidden folder may be read.

    Args:
        cuda: Also the GPU's device files and shared memory.
        own_proc: `/proc` shows this child's processes only; else it sees just itself, as landlock lets `environ`
            of other processes of the same user through.
        unprivileged: The child has a user without rights: then processes that it starts, such as profilers, may start
            CUDA too, which writes below `/proc` of the process that starts it.
        hidden: Folders that hold what a candidate must not read: the package with its tasks, the state folder.
    """
    grants: list[Grant] = []
    for path in dict.fromkeys([*_SYSTEM, *_python_folders()]):
        real = os.path.realpath(path)
        if os.path.exists(real):
            grants += readable_but(Path(real), hidden)
        if real != path:
            grants.append(Grant(path, 0))  # a name by which python knows the folder: kept visible, no rights of its own
    grants += [Grant(f"/etc/{name}", landlock.READ) for name in _ETC]
    grants += [Grant(path, landlock.USE_DEVICE) for path in _PLAIN_DEVICES]
    grants += [Grant("/sys", landlock.READ)]
    proc = ["/proc"] if own_proc else ["/proc/self", *(f"/proc/{name}" for name in _PROC_FILES)]
    grants += [Grant(path, landlock.READ) for path in proc]
    if cuda:
        devices = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
        grants += [Grant(path, landlock.USE_DEVICE) for path in devices]
        grants += [Grant("/proc/driver", landlock.READ), Grant("/dev/shm", landlock.WRITE)]
        own = ("/proc",) if own_proc and unprivileged else ("/proc/self/task", "/proc/self/comm")
        grants += [Grant(path, landlock.REWRITE) for path in own]
    elif own_proc:
        grants.append(Grant("/dev/shm", landlock.WRITE))  # a private one is mounted there
    return tuple(grants)


def enter_namespaces(walls: Walls, files: Sealed | None) -> None:
    """In the keeper, process 1 of its pid namespace: the other namespaces, and the scratch with its files."""
    namespaces.unshare(namespaces.CLONE_NEWNS | namespaces.CLONE_NEWNET | namespaces.CLONE_NEWIPC)
    namespaces.arrange(walls.mounts())
    fill_scratch(walls, files)


def fill_scratch(walls: Walls, files: Sealed | None) -> None:
    """Write the candidate's files into `candidate/` of its scratch and hand both to its user."""
    folder = Path(walls.scratch, "candidate")
    folder.mkdir(mode=0o700)
    if files is not None:
        files.write_files(folder)
    if walls.host.uid is not None:
        for path in (Path(walls.scratch), folder, *folder.iterdir()):
            os.chown(path, walls.host.uid, walls.host.uid)


def confine(walls: Walls) -> None:
    """In the child itself: environment, limits, user, capabilities, landlock, seccomp. No way back. Raises OSError."""
    os.environ.clear()
    os.environ.update(walls.environment)
    tempfile.tempdir = None  # some import had it looked up in the supervisor's environment
    os.chdir(walls.scratch)
    _limit(walls.limits)
    if os.geteuid() == 0:
        _drop_bounding_set()
        if walls.host.uid is not None:
            _become(walls.host.uid)
        _drop_capabilities()
    landlock.refuse_new_privileges()
    if walls.host.landlock_abi:
        own = [Grant(path, landlock.WRITE) for path in (walls.scratch, *walls.writable)]
        landlock.restrict_self([*walls.grants, *own], walls.host.landlock_abi)
    if walls.host.seccomp:
        seccomp.restrict_self()


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Be sent a signal when the parent ends. After `confine`: a change of user clears it."""
    _prctl(_PR_SET_PDEATHSIG, int(number))


def become_subreaper() -> None:
    """Inherit orphaned descendants, so that a daemon that left its group is still found."""
    pr_set_child_subreaper = 36
    _prctl(pr_set_child_subreaper, 1)


def _limit(limits: Limits) -> None:
    wanted = (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, limits.address_space_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes),
    )
    for kind, value in wanted:
        if value is None:
            continue
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # The change made `/proc/self` root's; CUDA writes there, and landlock keeps others of this user away.
    _prctl(_PR_SET_DUMPABLE, 1)


def _drop_bounding_set() -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # past the last one that the kernel knows


def _drop_capabilities() -> None:
    _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if _LIBC.capset(header, bytes(24)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the capabilities could not be dropped: {os.strerror(number)}")


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def _python_folders() -> list[str]:
    """Interpreter, standard library and packages; never the home folder itself, even if it is on the path."""
    home = Path.home()
    too_wide = {Path("/"), home, *home.parents}
    wanted = [*sys.path, sys.prefix, sys.base_prefix, *site.getsitepackages()]
    folders = [path for path in wanted if path and os.path.isabs(path) and os.path.isdir(path)]
    return [path for path in folders if Path(path).resolve() not in too_wide]


def readable_but(path: Path, hidden: Sequence[Path]) -> Iterable[Grant]:
    """Read rights on a folder; where something hidden lies in it, on its other entries one by one.

    Names stay listable there: python's importer lists a package folder before it opens anything in it.
    """
    if any(path == secret or secret in path.parents for secret in hidden):
        return
    if not any(path in secret.parents for secret in hidden):
        yield Grant(str(path), landlock.READ)
        return
    yield Grant(str(path), landlock.LIST)
    for entry in sorted(path.iterdir()):
        if not entry.is_symlink():
            yield from readable_but(entry, hidden)

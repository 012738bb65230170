"""What this host is, read without importing torch and without changing anything. `doctor` says what follows from it."""

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from kernelgate.server.counters_check import CounterAccess, read_access
from kernelgate.server.environment import cpu_model
from kernelgate.server.gpus import Gpu, GpuProcess, list_gpus, list_processes, why_hidden
from kernelgate.server.installed import package_version, torch_cuda
from kernelgate.tasks.model import Frozen
from kernelgate.tools.worker.landlock import landlock_abi
from kernelgate.tools.worker.lease import LEASE_FOLDER

PACKAGES: Final = ("torch", "triton", "mcp", "pydantic", "anyio", "sqlite-utils", "nvidia-ml-py", "click", "rich")
PROGRAMS: Final = ("cc", "nvcc", "ninja", "cuobjdump", "nvdisasm", "ptxas", "ncu")
_PROBE_LIMIT_S: Final = 10.0
_UNSHARE: Final = (
    "import ctypes, os, sys\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "sys.exit(os.strerror(ctypes.get_errno()) if libc.unshare(int(sys.argv[1])) else 0)\n"
)
NAMESPACES: Final = {"user": 0x10000000, "mount": 0x00020000, "pid": 0x20000000, "network": 0x40000000}
"""CLONE_NEW… flags of unshare(2)."""


class Folder(Frozen):
    """A folder that we write into, or would."""

    path: Path
    problem: str = ""
    """Why it cannot be written; empty if it can."""
    file_system: str = ""
    """Such as ext4; empty where it is not known."""
    free_bytes: int = 0


class Host(Frozen):
    """Everything that `doctor` judges by."""

    python: str
    executable: str
    system: str
    """`Linux`, `Darwin`, …"""
    kernel: str
    machine: str
    cpu_name: str
    cpu_cores: int
    """That this process may use: affinity and control group."""
    memory_bytes: int
    """Of the host, or the limit of the control group where that is less."""
    memory_free_bytes: int
    is_root: bool
    packages: dict[str, str]
    """Distribution → version, or `absent`."""
    torch_cuda: str | None
    """CUDA version that torch was built for; empty: built without; None: not known."""
    gpus: tuple[Gpu, ...]
    gpus_hidden: str = ""
    """What `CUDA_VISIBLE_DEVICES` leaves of them; empty where it leaves all."""
    gpu_processes: tuple[GpuProcess, ...] = ()
    """Who computes on them now."""
    driver_loaded: bool
    """Whether NVIDIA's kernel module is there, whatever NVML says."""
    programs: dict[str, str]
    """Program → its path; those that triton brings count; missing ones are not in it."""
    landlock_abi: int
    namespaces: dict[str, str]
    """Kind → why this user may not make one alone; empty if it may."""
    has_memfd: bool
    """Whether memory can be lent under seals."""
    has_descriptor_passing: bool
    counters: CounterAccess
    data: Folder
    leases: Folder


def read_host(data_dir: Path, lease_dir: Path = LEASE_FOLDER) -> Host:
    """Look at everything once: about 0.2 s, most of it four child processes that try namespaces. Writes nothing."""
    total, free = _memory_bytes()
    return Host(
        python=platform.python_version(),
        executable=sys.executable,
        system=platform.system(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu_name=cpu_model(),
        cpu_cores=_usable_cores(),
        memory_bytes=total,
        memory_free_bytes=free,
        is_root=os.geteuid() == 0,
        packages={name: package_version(name) for name in PACKAGES},
        torch_cuda=torch_cuda(),
        gpus=list_gpus(),
        gpus_hidden=why_hidden(),
        gpu_processes=list_processes(),
        driver_loaded=Path("/proc/driver/nvidia/version").exists(),
        programs={name: path for name in PROGRAMS if (path := _program(name))},
        landlock_abi=landlock_abi(),
        namespaces={kind: _why_no_namespace(flag) for kind, flag in NAMESPACES.items()},
        has_memfd=_has_memfd(),
        has_descriptor_passing=hasattr(socket, "send_fds"),
        counters=read_access(data_dir),
        data=read_folder(data_dir),
        leases=read_folder(lease_dir),
    )


def read_folder(path: Path) -> Folder:
    """A folder, or where it would be made: may this user write there, and how much fits."""
    existing = next(place for place in (path, *path.parents) if os.path.exists(place))  # False where it may not be seen
    if not existing.is_dir():
        problem = f"{existing} is a file"
    elif not os.access(existing, os.W_OK | os.X_OK):
        problem = f"{existing} may not be written by this user, or lies on a read-only file system"
    else:
        problem = ""
    return Folder(
        path=path,
        problem=problem,
        file_system=_file_system(existing),
        free_bytes=shutil.disk_usage(existing).free,
    )


def _file_system(path: Path) -> str:
    """Type of the file system with the longest mount point above a path."""
    place = path.resolve()
    best, kind = "", ""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for mount in mounts:
            fields, _, rest = mount.partition(" - ")
            point = fields.split()[4].replace("\\040", " ")
            if place.is_relative_to(point) and len(point) >= len(best):
                best, kind = point, rest.split()[0]
    return kind


def _usable_cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _memory_bytes() -> tuple[int, int]:
    """Total and free; the control group's limit counts where it is the smaller one. Zeros where /proc is missing."""
    sizes = {"MemTotal": 0, "MemAvailable": 0}
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            name, _, size = line.partition(":")
            if name in sizes:
                sizes[name] = int(size.split()[0]) * 1024
    total, free = sizes["MemTotal"], sizes["MemAvailable"]
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        total, free = min(total, limit), min(free, max(0, limit - used))
    return total, free


def _program(name: str) -> str:
    """Where a program is: on the PATH, in the CUDA toolkit's folder, or among those that triton brings."""
    places = [os.environ.get("PATH", os.defpath), os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")]
    with contextlib.suppress(PackageNotFoundError):
        places.append(str(distribution("triton").locate_file("triton/backends/nvidia/bin")))
    names = ("cc", "gcc", "clang") if name == "cc" else (name,)
    return next((path for each in names if (path := shutil.which(each, path=os.pathsep.join(places)))), "")


def _why_no_namespace(flag: int) -> str:
    """Try it in a child of our own, which ends at once."""
    if platform.system() != "Linux":
        return "Linux only"
    command = [sys.executable, "-I", "-S", "-c", _UNSHARE, str(flag)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"


def _has_memfd() -> bool:
    if not hasattr(os, "memfd_create"):
        return False
    try:
        os.close(os.memfd_create("kernelgate-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    except OSError:
        return False
    return True

"""What this host can do, and what to do about the rest. Pure judgement over `host.Host`; only `examine` looks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import model_validator

from kernelgate.server.calibrated import Calibrated, calibrations_in, told
from kernelgate.server.gpus import unusable
from kernelgate.server.host import Folder, Host, read_host
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.wire import Hello

if TYPE_CHECKING:
    from rich.console import Console

State = Literal["ok", "warn", "missing"]

OLDEST_PYTHON: Final = (3, 11)
OLDEST_TORCH: Final = (2, 11)
OLDEST_TRITON: Final = (3, 6)
DRIVER_FOR_CUDA: Final = {"12": 525, "13": 580}
"""Major version of CUDA → oldest driver branch that runs it (CUDA release notes, minor version compatibility)."""
NETWORK_FILE_SYSTEMS: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "beegfs", "ceph", "gpfs")
"""SQLite's write-ahead log needs shared memory among all processes, which these do not give."""
PASSING_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")
MEMORY_WANTED_BYTES: Final = 4 << 30
"""Supervisor, referee and candidate with torch take about 0.3 GB each before any tensor."""
DISK_WANTED_BYTES: Final = 1 << 30
"""Room for a few runs: artifacts are kept up to 256 MiB a run."""
LANDLOCK_TCP: Final = 4
LANDLOCK_SIGNALS: Final = 6
CUDA_BUILD: Final = "the CUDA build of torch (about 2.7 GB to download with its libraries; the CPU build is 0.2 GB)"
ESSENTIAL: Final = ("python", "torch", "packages", "system", "memory lending", "data folder", "lease folder")
"""Without one of these no candidate can be judged here."""


class Check(Frozen):
    """One thing that was looked at."""

    name: str
    state: State
    found: str
    advice: str = ""
    """What to do; never empty unless all is well."""

    @model_validator(mode="after")
    def _trouble_comes_with_advice(self) -> "Check":
        if self.state != "ok" and not self.advice:
            raise ValueError(f"check {self.name!r} says {self.state} and not what to do about it")
        return self


class Report(Frozen):
    """What `kernelgate doctor` says; `model_dump(mode="json")` is its `--json`."""

    can: tuple[str, ...]
    """What works here, one sentence each."""
    cannot: tuple[str, ...]
    """What does not."""
    checks: tuple[Check, ...]
    host: Host
    calibrated: tuple[Calibrated, ...] = ()
    """Devices that the book in the data folder measured on."""

    @property
    def usable(self) -> bool:
        """Whether candidates can be judged here at all."""
        return not any(check.state == "missing" and check.name in ESSENTIAL for check in self.checks)


def examine(data_dir: Path, ledger: Path, catalogue: Catalogue | None = None, hello: Hello | None = None) -> Report:
    """Look at this host and judge it. Imports no torch, writes nothing; takes about half a second.

    Args:
        data_dir: where ledger, logs and caches lie or would lie.
        ledger: the book.
        catalogue: the tasks to count; None leaves them out.
        hello: what a supervisor said when it started: how candidates are really confined. None: it was not asked.
    """
    report = judge(read_host(data_dir), catalogue, hello)
    return report.model_copy(update={"calibrated": calibrations_in(ledger)})


def judge(host: Host, catalogue: Catalogue | None = None, hello: Hello | None = None) -> Report:
    """The report over what was read. Pure but for the catalogue, which reads its files."""
    checks = [check(host) for check in _CHECKS]
    if host.gpus:
        checks += [_gpu_processes(host), _counters(host)]
    if hello is not None:
        checks.append(_confinement(hello))
    if catalogue is not None:
        checks.append(_tasks(catalogue))
    can, cannot = _abilities(host)
    return Report(can=can, cannot=cannot, checks=tuple(checks), host=host)


def _abilities(host: Host) -> tuple[tuple[str, ...], tuple[str, ...]]:
    has_triton = host.packages["triton"] != "absent"
    on_gpu = bool(host.torch_cuda) and any(not gpu.problem for gpu in host.gpus)
    abilities = [
        (host.packages["torch"] != "absent" and host.has_memfd, "check and time PyTorch candidates on the CPU"),
        (has_triton, "check Triton candidates in the interpreter, and compile them for a GPU that need not be here"),
        (on_gpu, "check, time and profile candidates on the GPU"),
    ]
    if on_gpu:
        abilities += [
            ({"nvcc", "ninja"} <= set(host.programs), "build candidates with inline CUDA C++"),
            ("ncu" in host.programs, "profile with Nsight Compute on request"),
        ]
    return tuple(text for able, text in abilities if able), tuple(text for able, text in abilities if not able)


def _python(host: Host) -> Check:
    found = f"{host.python} ({host.executable})"
    if _version(host.python) < OLDEST_PYTHON:
        return Check(
            name="python", state="missing", found=found, advice="Install Python 3.11 or newer and set up again."
        )
    return Check(name="python", state="ok", found=found)


def _torch(host: Host) -> Check:
    version = host.packages["torch"]
    if version == "absent":
        return Check(
            name="torch", state="missing", found="absent",
            advice=f"Install torch 2.11 or newer: on a GPU host {CUDA_BUILD}, elsewhere the CPU build.",
        )  # fmt: skip
    built = {None: "", "": ", built without CUDA"}.get(host.torch_cuda, f", built for CUDA {host.torch_cuda}")
    found = version + built
    if _version(version) < OLDEST_TORCH:
        return Check(name="torch", state="warn", found=found, advice="Tried with 2.11 and newer only: upgrade it.")
    if host.gpus and host.torch_cuda == "":
        return Check(name="torch", state="warn", found=found, advice=f"There is a GPU: install {CUDA_BUILD} to use it.")
    oldest = DRIVER_FOR_CUDA.get((host.torch_cuda or "").partition(".")[0], 0)
    driver = host.gpus[0].driver if host.gpus else ""
    if driver and _version(driver)[0] < oldest:
        advice = f"That CUDA needs driver {oldest} or newer, here is {driver}: update one or the other."
        return Check(name="torch", state="warn", found=found, advice=advice)
    return Check(name="torch", state="ok", found=found)


def _triton(host: Host) -> Check:
    version = host.packages["triton"]
    if version == "absent":
        advice = "Triton candidates can be neither built nor checked: pip install 'triton>=3.6' (Linux only)."
        return Check(name="triton", state="warn", found="absent", advice=advice)
    if _version(version) < OLDEST_TRITON:
        return Check(name="triton", state="warn", found=version, advice="Tried with 3.6 and newer only: upgrade it.")
    return Check(name="triton", state="ok", found=version)


def _packages(host: Host) -> Check:
    others = {name: version for name, version in host.packages.items() if name not in {"torch", "triton"}}
    absent = [name for name, version in others.items() if version == "absent"]
    found = ", ".join(f"{name} {version}" for name, version in others.items())
    if absent:
        advice = f"Install again: pip install kernelgate brings {', '.join(absent)}."
        return Check(name="packages", state="missing", found=found, advice=advice)
    return Check(name="packages", state="ok", found=found)


def _system(host: Host) -> Check:
    found = f"{host.system} {host.kernel}, {host.machine}"
    if host.system != "Linux":
        advice = "Candidates run on Linux only: use a Linux machine, a container or WSL 2. Ledgers can be read here."
        return Check(name="system", state="missing", found=found, advice=advice)
    return Check(name="system", state="ok", found=found)


def _cpu(host: Host) -> Check:
    found = f"{host.cpu_name}, {host.cpu_cores} core(s) for this process"
    if host.cpu_cores < 2:
        advice = "Server, referee and candidate share one core: times on the CPU will scatter. Allow at least two."
        return Check(name="cpu", state="warn", found=found, advice=advice)
    return Check(name="cpu", state="ok", found=found)


def _memory(host: Host) -> Check:
    found = f"{_gb(host.memory_free_bytes)} free of {_gb(host.memory_bytes)}"
    if host.memory_free_bytes < MEMORY_WANTED_BYTES:
        advice = "Less than 4.3 GB free: candidates may be killed for it. Close something, or use smaller workloads."
        return Check(name="memory", state="warn", found=found, advice=advice)
    return Check(name="memory", state="ok", found=found)


def _gpu(host: Host) -> Check:
    if host.gpus:
        names = ", ".join(f"{gpu.name} ({gpu.target})" if gpu.target else gpu.name for gpu in host.gpus)
        known = (f"driver {host.gpus[0].driver}" if host.gpus[0].driver else "", host.gpus_hidden)
        found = ", ".join([names, *filter(None, known)])
        if problems := unusable(list(enumerate(host.gpus))):
            rest = "The others can." if any(not gpu.problem for gpu in host.gpus) else "The cpu device works meanwhile."
            return Check(name="gpu", state="warn", found=found, advice=f"{problems}. {rest}")
        return Check(name="gpu", state="ok", found=found)
    still = "Without one, PyTorch candidates are timed on the CPU and Triton ones compiled and checked, not timed."
    if host.gpus_hidden:
        return Check(name="gpu", state="warn", found=host.gpus_hidden, advice=f"Unset it, or name a GPU in it. {still}")
    if host.driver_loaded:
        return Check(
            name="gpu", state="warn", found="NVIDIA's driver is loaded, but NVML finds no device",
            advice=f"In a container, start it with the GPUs (--gpus all); else see what nvidia-smi says. {still}",
        )  # fmt: skip
    return Check(
        name="gpu", state="missing", found="no NVIDIA GPU, or no driver for it",
        advice=f"{still} If there is a GPU, install NVIDIA's driver (580 or newer for CUDA 13).",
    )  # fmt: skip


def _counters(host: Host) -> Check:
    seen = host.counters
    return Check(name="counters", state="warn" if seen.advice else "ok", found=seen.found, advice=seen.advice)


def _gpu_processes(host: Host) -> Check:
    if not host.gpu_processes:
        return Check(name="gpu processes", state="ok", found="nobody computes on it now")
    found = "; ".join(
        f"cuda:{one.index}: pid {one.pid}" + (f", {one.memory_mib} MiB" if one.memory_mib else "")
        for one in host.gpu_processes
    )
    advice = (
        "They slow down what is measured beside them: stop them, or use another GPU. The referee of a running "
        "kernelgate server is one of them and does no harm."
    )
    return Check(name="gpu processes", state="warn", found=found, advice=advice)


_NEEDED_FOR: Final = {
    "cc": ("a C compiler", "Triton on a GPU and torch.compile need one: install gcc."),
    "nvcc": ("nvcc", "Candidates with inline CUDA C++ cannot be built: install the CUDA toolkit."),
    "ninja": ("ninja", "Candidates with inline C++ or CUDA cannot be built: pip install ninja."),
    "cuobjdump": (
        "cuobjdump",
        "Registers and spills of Triton kernels are not reported: install triton, which brings it.",
    ),
    "nvdisasm": ("nvdisasm", "The instruction mix of Triton kernels is not reported: install triton, which brings it."),
    "ncu": ("ncu", "No Nsight Compute on request; everything else works: install it with the CUDA toolkit."),
}


def _programs(host: Host) -> Check:
    absent = [name for name in _NEEDED_FOR if name not in host.programs and not (name == "ncu" and not host.gpus)]
    found = ", ".join(_NEEDED_FOR[name][0] for name in _NEEDED_FOR if name in host.programs)
    if absent:
        missing = f"no {', no '.join(_NEEDED_FOR[name][0] for name in absent)}"
        advice = " ".join(_NEEDED_FOR[name][1] for name in absent)
        return Check(name="programs", state="warn", found=f"{missing}; {found or 'nothing else'}", advice=advice)
    return Check(name="programs", state="ok", found=found)


def _landlock(host: Host) -> Check:
    abi = host.landlock_abi
    if abi == 0:
        advice = (
            "Candidates can read your files and signal your processes unless this runs as root with namespaces: use a "
            "kernel from 5.13 with landlock in its lsm= list, or a container that lets landlock's system calls through."
        )
        return Check(name="landlock", state="missing", found="the kernel has none", advice=advice)
    lacks = [
        text
        for since, text in ((LANDLOCK_TCP, "open TCP connections"), (LANDLOCK_SIGNALS, "signal this user's processes"))
        if abi < since
    ]
    if lacks:
        advice = f"Candidates may still {' and '.join(lacks)} unless this runs as root: a kernel from 6.12 closes that."
        return Check(name="landlock", state="warn", found=f"version {abi}", advice=advice)
    return Check(name="landlock", state="ok", found=f"version {abi}")


def _namespaces(host: Host) -> Check:
    refused = {kind: why for kind, why in host.namespaces.items() if why}
    allowed = [kind for kind in host.namespaces if kind not in refused]
    found = "; ".join(
        [f"allowed: {', '.join(allowed) or 'none'}", *(f"{kind}: {why}" for kind, why in refused.items())]
    )
    if not host.is_root:
        return Check(name="namespaces", state="ok", found=f"{found} (used by root only)")
    if refused.keys() & {"mount", "pid", "network"}:
        advice = (
            "Candidates see other processes and the network: give the container CAP_SYS_ADMIN, or trust landlock alone."
        )
        return Check(name="namespaces", state="warn", found=found, advice=advice)
    return Check(name="namespaces", state="ok", found=found)


def _user(host: Host) -> Check:
    if host.is_root:
        return Check(name="user", state="ok", found="root: candidates run as a user of their own without capabilities")
    return Check(
        name="user", state="ok", found="not root: candidates run as this user behind landlock",
        advice="Landlock lets UDP out; as root, candidates get no network and no sight of other processes at all.",
    )  # fmt: skip


def _lending(host: Host) -> Check:
    if host.has_memfd and host.has_descriptor_passing:
        return Check(name="memory lending", state="ok", found="sealed memory and descriptor passing")
    advice = "Tensors cannot be lent to candidates: use Linux 3.17 or newer and a container that allows memfd_create."
    return Check(
        name="memory lending", state="missing", found="no memfd_create or no descriptor passing", advice=advice
    )


def _data(host: Host) -> Check:
    folder = host.data
    if folder.problem:
        advice = "Make it writable, or name another folder: --data DIR or KERNELGATE_HOME."
        return Check(name="data folder", state="missing", found=f"{folder.path}: {folder.problem}", advice=advice)
    found = _place(folder)
    if folder.file_system in NETWORK_FILE_SYSTEMS:
        advice = (
            "The ledger's write-ahead log needs a local disk: name another folder with --data DIR or KERNELGATE_HOME."
        )
        return Check(name="data folder", state="warn", found=found, advice=advice)
    if folder.file_system in PASSING_FILE_SYSTEMS:
        advice = (
            "It is gone after a restart: name another folder with --data DIR or KERNELGATE_HOME to keep the ledger."
        )
        return Check(name="data folder", state="warn", found=found, advice=advice)
    if folder.free_bytes < DISK_WANTED_BYTES:
        return Check(name="data folder", state="warn", found=found, advice="Free some space: a run may keep 256 MiB.")
    return Check(name="data folder", state="ok", found=found)


def _leases(host: Host) -> Check:
    folder = host.leases
    if folder.problem:
        return Check(
            name="lease folder", state="missing", found=f"{folder.path}: {folder.problem}",
            advice="No device can be leased: let every user write there (mode 1777).",
        )  # fmt: skip
    return Check(name="lease folder", state="ok", found=_place(folder))


_CHECKS: Final[Sequence[Callable[[Host], Check]]] = (
    _python, _torch, _triton, _packages, _system, _cpu, _memory, _gpu, _programs, _user, _landlock, _namespaces,
    _lending, _data, _leases,
)  # fmt: skip


def _confinement(hello: Hello) -> Check:
    found = "; ".join(hello.confinement) or "nothing holds candidates on this host"
    if hello.gaps or not hello.confinement:
        advice = "; ".join(hello.gaps) or "Run only candidates that you trust, or use a host with landlock."
        return Check(name="confinement", state="warn", found=found, advice=advice)
    return Check(name="confinement", state="ok", found=found)


def _tasks(catalogue: Catalogue) -> Check:
    entries = catalogue.entries()
    unusable = [entry for entry in entries if entry.unavailable is not None]
    found = f"{len(entries) - len(unusable)} can be optimised"
    if not unusable:
        return Check(name="tasks", state="ok", found=found)
    first = f"{unusable[0].name}: {unusable[0].unavailable}"
    advice = f"{first}. `kernelgate tasks list` shows the reason for each."
    return Check(name="tasks", state="warn", found=f"{found}, {len(unusable)} cannot", advice=advice)


def _version(text: str) -> tuple[int, int]:
    """Major and minor of a version; zeros for what is not a number."""
    parts = [int(part) if part.isdigit() else 0 for part in text.split("+")[0].split(".")]
    return (*parts, 0, 0)[0], (*parts, 0, 0)[1]


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB"


def _place(folder: Folder) -> str:
    return f"{folder.path} ({folder.file_system or 'unknown file system'}, {_gb(folder.free_bytes)} free)"


def render(report: Report, console: "Console") -> None:
    """Print a report for people: what works first, then each check, with what to do under it."""
    from rich.table import Table  # imported here: `serve` and `--json` never need it
    from rich.text import Text

    for able, sentences in (("can", report.can), ("cannot", report.cannot)):
        for sentence in sentences:
            console.print(Text.assemble((f"{able:>6} ", "green" if able == "can" else "yellow"), sentence))
    table = Table.grid(padding=(0, 1))
    for overflow in ("ignore", "ignore", "fold"):  # a path that is cut cannot be copied
        table.add_column(overflow=overflow, no_wrap=overflow == "ignore")
    for check in report.checks:
        colour = {"ok": "green", "warn": "yellow", "missing": "red"}[check.state]
        table.add_row(Text(f"{check.state:>7}", colour), Text(check.name, "bold"), Text(check.found))
        if check.advice:
            table.add_row("", "", Text(f"→ {check.advice}"))
    for one in report.calibrated:
        for number, sentence in enumerate(told(one)):
            table.add_row(
                "" if number else Text("     ok", "green"), "" if number else Text(one.name, "bold"), sentence
            )
    console.print()
    console.print(table)

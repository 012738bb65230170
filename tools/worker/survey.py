"""Finds out what holds candidates on this host, by putting a child behind each kind of wall and looking."""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import kernelgate
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import confine, landlock, seccomp
from kernelgate.tools.worker.children import spawn
from kernelgate.tools.worker.confine import PIDS_LIMIT, Host, Walls
from kernelgate.tools.worker.plans import CannotFork, Plan
from kernelgate.tools.worker.sealed import Sealed

CPU_UID: Final = 65533
_FIRST_GPU_UID: Final = 65520
"""Users 65520 to 65533 are handed out by nobody; one per device, so that what a candidate left behind is known."""
_GPU_UIDS: Final = 13
_REHEARSAL_LIMIT_S: Final = 20.0
_CUDA_LIMIT_S: Final = 60.0
"""Without a process that keeps it awake, a driver takes seconds to start a GPU."""


@dataclass(frozen=True)
class Survey:
    """What the host can do, and what `doctor` says of it."""

    host: Host
    holds: tuple[str, ...]
    gaps: tuple[str, ...]

    @property
    def walls(self) -> tuple[str, ...]:
        """What is on, in short: it goes into the book with each measurement."""
        host = self.host
        on = {
            "namespaces": host.namespaces,
            f"landlock {host.landlock_abi}": host.landlock_abi > 0,
            "seccomp": host.seccomp,
            "own user": host.uid is not None,
            "pids cgroup": bool(host.pids_cgroup),
            "rlimits": True,
        }
        return tuple(name for name, is_on in on.items() if is_on)


def hidden_folders(state_dir: Path) -> list[Path]:
    """What no child may read although python's folders may hold it: this package with its tasks, and the state."""
    sides = [Path(root, side) for root in kernelgate.__path__ for side in ("server", "tools", "budget", "tasks")]
    return [state_dir.resolve(), *(side.resolve() for side in sides)]


async def survey(device: DeviceRef, state_dir: Path, *, namespaces: bool) -> Survey:
    """Try the walls from the strongest down, each in a rehearsal with a real child; about 0.1 s each."""
    plain = Host(landlock_abi=landlock.landlock_abi(), seccomp=not seccomp.why_not(), pids_cgroup=_pids_cgroup())
    choices = [plain]
    if os.geteuid() == 0:
        uid = CPU_UID if device.kind == "cpu" else _FIRST_GPU_UID + device.number % _GPU_UIDS
        walled = [replace(plain, namespaces=True, uid=uid), replace(plain, namespaces=True)] if namespaces else []
        choices = [*walled, replace(plain, uid=uid), plain]
    refused: dict[Host, str] = {}
    strongest: Host | None = None
    for host in choices:
        why = await _rehearse(host, device, state_dir)
        if not why and device.kind == "cuda":
            strongest = strongest or host
            why = await _rehearse_cuda(host, device, state_dir)
        if not why:
            return Survey(host, _holds(host), _gaps(host, refused, device))
        refused[host] = why
    if strongest is None:
        raise CannotFork(f"no child can be started on this host: {refused[plain]}")
    missing = f"CUDA: it cannot be used by children of this process, whatever holds them: {refused[plain]}"
    return Survey(strongest, _holds(strongest), (missing, *_gaps(strongest, {}, device)))


async def _rehearse(host: Host, device: DeviceRef, state_dir: Path) -> str:
    """Why a child behind such walls cannot work; empty if it can."""
    return await _act(host, device, state_dir, partial(_look_around, _python_files()))


async def _rehearse_cuda(host: Host, device: DeviceRef, state_dir: Path) -> str:
    """Why CUDA does not start behind such walls, or memory cannot be lent between two children; empty if it can."""
    from kernelgate.tools.worker import cuda_rehearsal  # it brings torch, which a supervisor of a GPU has anyway

    near, far = socket.socketpair()
    parts = ((cuda_rehearsal.lend, near), (cuda_rehearsal.borrow, far))
    acts = [_act(host, device, state_dir, partial(body, sock), sock) for body, sock in parts]
    whys = [why for why in await asyncio.gather(*acts) if why]
    # The one that says more than that the other one ended.
    return next((why for why in whys if "RehearsalFailed" not in why), whys[0] if whys else "")


async def _act(
    host: Host,
    device: DeviceRef,
    state_dir: Path,
    body: Callable[[], None],
    sock: socket.socket | None = None,
) -> str:
    """Run a body in a child behind such walls, which takes over a socket; why it failed, if it did."""
    scratch = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=state_dir))
    try:
        if host.uid is not None:
            os.chown(scratch, host.uid, host.uid)
        grants = confine.system_grants(
            cuda=device.kind == "cuda", own_proc=host.namespaces, hidden=hidden_folders(state_dir),
            unprivileged=host.uid is not None,
        )  # fmt: skip
        own = {"PATH": os.defpath, "HOME": str(scratch), "CUDA_VISIBLE_DEVICES": device.uid}
        walls = Walls(
            host, grants, str(scratch), covered=(str(state_dir),), environment=own,
            shared_memory=device.kind == "cuda",
        )  # fmt: skip
        kept = () if sock is None else (sock,)
        try:
            with Sealed.seal_json({}, {"candidate.py": ""}) as files:
                child = await spawn(Plan("rehearsal", walls, body, kept, files=files), set())
        except CannotFork as error:
            return str(error)
        finally:
            for inherited in kept:
                inherited.close()
        try:
            await child.begun(_REHEARSAL_LIMIT_S)
            await child.finished(_CUDA_LIMIT_S if kept else _REHEARSAL_LIMIT_S)
        except CannotFork as error:
            child.kill()
            return str(error)
        finally:
            child.kill()
            await child.gone()
            said = child.capture.text().strip()
            child.capture.close()
        ended = child.ended
        if ended is not None and not ended.signalled and ended.status == 0:
            return ""
        return (said or f"it ended with {ended}").splitlines()[-1]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _python_files() -> list[str]:
    """One file of each folder that python imports from, and of the largest package."""
    found: list[str] = []
    for folder in (entry for entry in sys.path if os.path.isdir(entry)):
        found += [entry.path for entry in os.scandir(folder) if entry.is_file() and entry.name.endswith(".py")][:1]
    torch = sys.modules.get("torch")
    return [*found, torch.__file__] if torch is not None and torch.__file__ else found


def _look_around(files: Sequence[str]) -> None:
    """In a rehearsal: what python may still import must be readable, the scratch writable."""
    Path("written").write_text("x")
    for file in files:
        Path(file).open("rb").close()


def _pids_cgroup() -> str:
    """A folder in which this process may make pids cgroups, by trying; leftovers of dead keepers are removed."""
    for folder in _own_cgroups(Path("/proc/self/cgroup").read_text().splitlines()):
        trial = folder / f"kernelgate-trial-{os.getpid()}"
        try:
            trial.mkdir()
        except OSError:
            continue
        try:
            (trial / "pids.max").write_text(str(PIDS_LIMIT))
        except OSError:
            continue
        finally:
            trial.rmdir()
        for left in folder.glob("kernelgate-[0-9]*"):
            _remove_empty_cgroup(left)
        return str(folder)
    return ""


def _remove_empty_cgroup(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # somebody lives there


def _own_cgroups(lines: Sequence[str]) -> list[Path]:
    """Where this process stands in the pids hierarchy: version 1 or 2."""
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):
            found.append(Path(f"/sys/fs/cgroup/pids{path}"))
        elif not controllers:
            found.append(Path(f"/sys/fs/cgroup{path}"))
    return found


def _holds(host: Host) -> tuple[str, ...]:
    lines: list[str] = []
    if host.namespaces:
        lines.append("namespaces: own processes, network and mounts; all is read-only but its scratch and its caches")
    if host.landlock_abi:
        scopes = ", no TCP" if host.landlock_abi >= landlock.ABI_NET else ""
        scopes += ", no signals to others" if host.landlock_abi >= landlock.ABI_SCOPES else ""
        lines.append(f"landlock (ABI {host.landlock_abi}): reads system and python files, writes its scratch{scopes}")
    if host.seccomp:
        lines.append("seccomp: changes no limits, priorities or processors of others, traces nobody, mounts nothing")
    if host.uid is not None:
        lines.append(f"user: candidates and referee run as uid {host.uid} without capabilities")
    elif os.geteuid() == 0:
        lines.append("user: uid 0 with all capabilities dropped")
    else:
        lines.append("user: the server's own, without new privileges")
    if host.pids_cgroup:
        lines.append(f"fork bombs: a pids cgroup of {PIDS_LIMIT} for each candidate")
    elif host.uid is not None or os.geteuid() != 0:
        lines.append("fork bombs: a process limit of the user")
    lines.append("output, files, memory map and time of a candidate are bounded; what it leaves running is killed")
    return tuple(lines)


def _gaps(host: Host, refused: Mapping[Host, str], device: DeviceRef) -> tuple[str, ...]:
    root = os.geteuid() == 0
    gaps: list[str] = []
    if not host.landlock_abi:
        gaps.append("landlock: this kernel has none; use Linux 5.13 or later with landlock enabled")
    elif host.landlock_abi < landlock.ABI_SCOPES:
        gaps.append(
            f"landlock ABI {host.landlock_abi}: signals to processes of its own user get out; use Linux 6.12 or later"
        )
    if not host.seccomp:
        gaps.append(
            "seccomp: limits, priorities and processors of other processes of its own user can be changed"
            f" ({seccomp.why_not() or 'not tried'}); use Linux on x86_64 or aarch64 with seccomp filters"
        )
    if not host.namespaces:
        why = _because(why for tried, why in refused.items() if tried.namespaces and tried.uid is None)
        gaps.append(f"network: TCP only; UDP gets out without a network namespace, which needs root{why}")
        gaps.append("files: mode and times of files of its own user can be changed; mount namespaces (root) prevent it")
    if host.uid is None and root:
        why = _because(why for tried, why in refused.items() if tried.uid is not None)
        gaps.append(f"user: uid 0 without capabilities, as a dedicated user cannot run this python{why}")
    if device.kind == "cuda" and host.uid is None:
        gaps.append("/dev/shm: what a candidate leaves there cannot be told from others' and stays")
    if not host.pids_cgroup and host.uid is None and root:
        gaps.append("fork bombs: only swept after the fact; make a pids cgroup writable to bound them")
    return tuple(gaps)


def _because(reasons: Iterable[str]) -> str:
    return next((f" ({why})" for why in reasons), "")

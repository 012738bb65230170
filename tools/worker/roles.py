"""Which walls each kind of child gets: the untrusted candidate, the trusted referee and builder."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from kernelgate.tools.kit.counter_access import counters_folder
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import confine, landlock
from kernelgate.tools.worker.confine import CPU_ADDRESS_SPACE_BYTES, PIDS_LIMIT, Host, Limits, Walls
from kernelgate.tools.worker.counters import COUNTERS_FOLDER
from kernelgate.tools.worker.folders import Caches
from kernelgate.tools.worker.landlock import Grant
from kernelgate.tools.worker.survey import hidden_folders

Mode = Literal["run", "trace"]

_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CC", "CXX")
"""Of the supervisor's environment, which the server has cleaned before: what compilers and drivers need."""
_FILE_LIMIT_BYTES: Final = 1 << 30
_OPEN_FILES: Final = 1024
"""Lent memory comes in frames of up to 200 descriptors."""
_TRUSTED_OOM_SCORE: Final = 300
"""Goes before the server, after any candidate."""


@dataclass(frozen=True)
class Roles:
    """Makes the walls of children on one device."""

    host: Host
    device: DeviceRef
    state_dir: Path
    grants: tuple[Grant, ...]
    process_limit: int | None
    """RLIMIT_NPROC of candidates where no pids cgroup counts them."""

    @classmethod
    def on(cls, host: Host, device: DeviceRef, state_dir: Path) -> "Roles":
        """The roles on a surveyed host. Walks python's folders once."""
        grants = confine.system_grants(
            cuda=device.kind == "cuda", own_proc=host.namespaces, hidden=hidden_folders(state_dir),
            unprivileged=host.uid is not None,
        )  # fmt: skip
        return cls(host, device, state_dir, grants, _process_limit(host))

    def candidate(self, scratch: Path, caches: Caches, mode: Mode) -> Walls:
        """Writes its scratch and caches; on the CPU the Triton cache only while it is traced."""
        cpu = self.device.kind == "cpu"
        own = [caches.inductor, caches.extensions]
        read = [Grant(str(caches.triton), landlock.READ)]
        if mode == "trace" or not cpu:
            own.append(caches.triton)
        limits = Limits(
            address_space_bytes=CPU_ADDRESS_SPACE_BYTES if cpu else None,
            file_bytes=_FILE_LIMIT_BYTES,
            open_files=_OPEN_FILES,
            processes=self.process_limit,
        )
        return self._walls(scratch, caches, own, read, limits, mode)

    def referee(self, scratch: Path, caches: Caches) -> Walls:
        """Writes its scratch and its own caches."""
        own = [caches.triton, caches.inductor, caches.extensions]
        counters = counters_folder(self.state_dir.parent)
        read = [Grant(str(counters), landlock.READ)] if counters.is_dir() else []
        walls = self._walls(scratch, caches, own, read, Limits(oom_score_adj=_TRUSTED_OOM_SCORE), "run")
        return replace(walls, environment={**walls.environment, COUNTERS_FOLDER: str(counters)})

    def builder(self, scratch: Path, caches: Caches) -> Walls:
        """Reads what the candidate has compiled, writes its scratch."""
        read = [Grant(str(folder), landlock.READ) for folder in (caches.triton, caches.extensions)]
        return self._walls(scratch, caches, [], read, Limits(oom_score_adj=_TRUSTED_OOM_SCORE), "trace")

    def _walls(
        self, scratch: Path, caches: Caches, own: list[Path], read: list[Grant], limits: Limits, mode: Mode
    ) -> Walls:
        return Walls(
            host=self.host,
            grants=(*self.grants, *read),
            scratch=str(scratch),
            writable=tuple(str(folder) for folder in own),
            covered=(str(self.state_dir),),
            limits=limits,
            environment=self._environment(scratch, caches, mode),
            shared_memory=self.device.kind == "cuda",
        )

    def _environment(self, scratch: Path, caches: Caches, mode: Mode) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        own = {
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "USER": "kernelgate",
            "LOGNAME": "kernelgate",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": str(self.device.threads),
            "TRITON_CACHE_DIR": str(caches.triton),
            "TORCHINDUCTOR_CACHE_DIR": str(caches.inductor),
            "TORCH_EXTENSIONS_DIR": str(caches.extensions),
            "TORCH_CUDA_ARCH_LIST": architecture(self.device.target),
        }
        if mode == "trace" or self.device.kind == "cpu":
            own["CUDA_VISIBLE_DEVICES"] = ""
        else:
            own["CUDA_VISIBLE_DEVICES"] = self.device.uid  # by UUID: it is the only device that the child sees
        return {**passed, **own}


def architecture(target: str) -> str:
    """A target as torch's extension builder names it: `sm_90` is `9.0`. One builds twice as fast as two."""
    digits = target.removeprefix("sm_")
    return f"{digits[:-1]}.{digits[-1]}"


def _process_limit(host: Host) -> int | None:
    """Processes of the children's user now, and room for one candidate; None where a cgroup counts better."""
    if host.pids_cgroup or (host.uid is None and os.geteuid() == 0):
        return None
    uid = os.geteuid() if host.uid is None else host.uid
    return _threads_of(uid) + PIDS_LIMIT


def _threads_of(uid: int) -> int:
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == uid:
                total += len(os.listdir(folder / "task"))
        except OSError:
            continue  # it ended while we looked
    return total

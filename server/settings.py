"""All that may be set from outside, as one frozen object: environment variables first, command line over them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import Field

from kernelgate.budget.model import Budget
from kernelgate.tasks.model import Frozen

DEFAULT_TARGET: Final = "sm_90"
"""GPU architecture that Triton candidates are compiled for where there is no GPU to ask."""
QUEUE_LIMIT_S: Final = 120.0
"""A hold that got no lease for so long is released: others may need the money."""


class Settings(Frozen):
    """How a server is set up."""

    data_dir: Path
    """Ledger, artifacts, logs, caches."""
    task_dirs: tuple[Path, ...] = ()
    """Folders of the user's own tasks."""
    kernelbench: Path | None = None
    """A KernelBench checkout."""
    device: str = ""
    """`cpu`, `cuda:0`, …; empty: the first GPU, else the CPU."""
    target: str = DEFAULT_TARGET
    cpu_threads: int = Field(default=1, ge=1, le=256)
    """Torch threads on the CPU device: few, so that the server and its client do not disturb the clock."""
    caps: Budget = Budget()
    """The most that a run is granted; an agent may ask for less."""

    @property
    def ledger(self) -> Path:
        """The SQLite file."""
        return self.data_dir / "ledger.db"

    @property
    def log(self) -> Path:
        """The server's own log."""
        return self.data_dir / "server.log"

    @property
    def own_tasks(self) -> Path:
        """Where `kernelgate tasks add` puts tasks."""
        return self.data_dir / "tasks"


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """`KERNELGATE_HOME`, else the XDG data folder."""
    if home := environ.get("KERNELGATE_HOME"):
        return Path(home).expanduser().absolute()
    base = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "kernelgate"


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from `KERNELGATE_HOME`, `KERNELGATE_TASKS` (folders, `:` between), `KERNELGATE_KERNELBENCH`,
    `KERNELGATE_DEVICE` and `KERNELGATE_CPU_THREADS`.
    """  # noqa: D205 -- the names belong into the first sentence
    checkout = environ.get("KERNELGATE_KERNELBENCH")
    folders = [part for part in environ.get("KERNELGATE_TASKS", "").split(os.pathsep) if part]
    return Settings(
        data_dir=default_data_dir(environ),
        task_dirs=tuple(Path(folder).expanduser().absolute() for folder in folders),
        kernelbench=Path(checkout).expanduser().absolute() if checkout else None,
        device=environ.get("KERNELGATE_DEVICE", ""),
        cpu_threads=int(environ.get("KERNELGATE_CPU_THREADS", "1")),
    )

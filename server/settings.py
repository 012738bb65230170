"""All that may be set from outside, as one frozen object: environment variables first, command line over them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import Field

from kernelgate.server.policy import Policy, PolicyError, read_policy
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.arguments import device_name

DEFAULT_TARGET: Final = "sm_90"
"""GPU architecture that Triton candidates are compiled for where there is no GPU to ask."""
QUEUE_LIMIT_S: Final = 120.0
"""A hold that got no lease for so long is released: others may need the money."""


MAX_CPU_THREADS: Final = 256


class SettingsError(Exception):
    """A setting from outside that makes no sense: one sentence with what is allowed."""


class Settings(Frozen):
    """How a server is set up."""

    data_dir: Path
    """Ledger, artifacts, logs, caches."""
    task_dirs: tuple[Path, ...] = ()
    """Folders of the user's own tasks."""
    kernelbench: Path | None = None
    """A KernelBench checkout."""
    device: str = ""
    """`cpu`, `cuda:0`, …; empty: the first GPU that can be used, else the CPU."""
    target: str = DEFAULT_TARGET
    cpu_threads: int = Field(default=1, ge=1, le=MAX_CPU_THREADS)
    """Torch threads on the CPU device: few, so that the server and its client do not disturb the clock."""
    require_confinement: bool = False
    """Refuse to run candidates unless everything that `doctor` knows of holds them."""
    policy: Policy = Policy()
    """Caps, prices and rules."""

    @property
    def ledger(self) -> Path:
        """The SQLite file."""
        return self.data_dir / "ledger.db"

    @property
    def log(self) -> Path:
        """The server's own log."""
        return self.data_dir / "server.log"

    @property
    def state_dir(self) -> Path:
        """Where the worker keeps scratches and caches."""
        return self.data_dir / "work"

    @property
    def own_tasks(self) -> Path:
        """Where `kernelgate tasks add` puts tasks."""
        return self.data_dir / "tasks"


def resolved(path: str | Path) -> Path:
    """A path as it was given → the one place that it names from any folder: no `~`, no `..`, no link."""
    return Path(os.path.realpath(Path(path).expanduser()))


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """`KERNELGATE_HOME`, else the XDG data folder."""
    if home := environ.get("KERNELGATE_HOME"):
        return resolved(home)
    base = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return resolved(base) / "kernelgate"


def from_environment(
    environ: Mapping[str, str] = os.environ, *, data_dir: Path | None = None, policy_file: Path | None = None
) -> Settings:
    """Settings from `KERNELGATE_HOME`, `KERNELGATE_TASKS` (folders, `:` between), `KERNELGATE_KERNELBENCH`,
    `KERNELGATE_DEVICE`, `KERNELGATE_CPU_THREADS`, `KERNELGATE_REQUIRE_CONFINEMENT` and `KERNELGATE_CONFIG`; raises
    `SettingsError`.

    Args:
        environ: the variables.
        data_dir: from the command line, instead of the variable.
        policy_file: the same.
    """  # noqa: D205 -- the names belong into the first sentence
    folder = data_dir or default_data_dir(environ)
    named = environ.get("KERNELGATE_CONFIG")
    try:
        policy = read_policy(folder, policy_file or (resolved(named) if named else None))
    except PolicyError as error:
        raise SettingsError(str(error)) from None
    checkout = environ.get("KERNELGATE_KERNELBENCH")
    folders = [part for part in environ.get("KERNELGATE_TASKS", "").split(os.pathsep) if part]
    return Settings(
        data_dir=folder,
        task_dirs=tuple(resolved(folder) for folder in folders),
        kernelbench=resolved(checkout) if checkout else None,
        device=checked_device(environ.get("KERNELGATE_DEVICE", ""), "KERNELGATE_DEVICE"),
        cpu_threads=_threads(environ.get("KERNELGATE_CPU_THREADS") or "1"),
        require_confinement=_yes(environ.get("KERNELGATE_REQUIRE_CONFINEMENT") or "0"),
        policy=policy,
    )


def checked_device(wish: str, source: str) -> str:
    """The name of a device as it was given; raises `SettingsError` for one that no host has."""
    try:
        return device_name(wish)
    except ValueError as error:
        raise SettingsError(f"{source}={error}") from None


def _yes(text: str) -> bool:
    if text not in ("0", "1"):
        raise SettingsError(f"KERNELGATE_REQUIRE_CONFINEMENT={text} is neither 1 (require it) nor 0")
    return text == "1"


def _threads(text: str) -> int:
    number = int(text) if re.fullmatch(r"[0-9]{1,4}", text) else 0
    if not 1 <= number <= MAX_CPU_THREADS:
        raise SettingsError(f"KERNELGATE_CPU_THREADS={text} is no number of threads: use 1 to {MAX_CPU_THREADS}")
    return number

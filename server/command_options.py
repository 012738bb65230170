"""Options that several commands take, and the settings that come of them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from kernelgate.server.settings import Settings, SettingsError, checked_device, from_environment, resolved

data_option: Final = click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of the ledger, logs and caches; default: KERNELGATE_HOME, else ~/.local/share/kernelgate.",
)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What most commands take. Each also has an environment variable (KERNELGATE_HOME, …_TASKS, …)."""
    for option in (
        data_option,
        click.option(
            "--tasks", "task_dirs", multiple=True, type=click.Path(path_type=Path), help="A folder of your own tasks."
        ),
        click.option("--kernelbench", type=click.Path(path_type=Path), help="A KernelBench checkout."),
        click.option("--device", default=None, help="cpu, cuda:0, …; default: the first usable GPU, else the CPU."),
        click.option(
            "--config",
            "policy_file",
            type=click.Path(path_type=Path),
            help="TOML file of caps, prices and rules; default: kernelgate.toml in the data folder.",
        ),
    ):
        command = option(command)
    return command


def settings_from(
    data: Path | None, task_dirs: tuple[Path, ...] = (), kernelbench: Path | None = None, device: str | None = None,
    policy_file: Path | None = None,
) -> Settings:  # fmt: skip
    """Settings of what was given over those of the environment; what cannot be used ends the command."""
    given = {
        "task_dirs": tuple(resolved(folder) for folder in task_dirs) or None,
        "kernelbench": resolved(kernelbench) if kernelbench else None,
        "device": device,
    }
    try:
        checked_device(device or "", "--device")
        found = from_environment(
            data_dir=resolved(data) if data else None, policy_file=resolved(policy_file) if policy_file else None
        )
    except SettingsError as error:
        from kernelgate.server.trouble import say

        sys.exit(say(str(error)))
    return found.model_copy(update={name: value for name, value in given.items() if value is not None})

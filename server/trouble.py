"""Ending a command with one sentence on stderr when something outside has to be mended first."""

import sys
from collections.abc import Callable
from typing import Final, cast

from kernelgate.budget.errors import LedgerError
from kernelgate.server.clients import ConfigError
from kernelgate.server.gpus import NoSuchDevice
from kernelgate.server.settings import SettingsError
from kernelgate.tasks.taskfile import TaskError

TROUBLE: Final = 2
"""Exit status."""


class Trouble(Exception):
    """Why a command cannot go on: one sentence with what to do."""


MENDABLE: Final = (LedgerError, TaskError, NoSuchDevice, SettingsError, ConfigError, Trouble)
"""Errors whose sentence is for the user."""


def say(sentence: str) -> int:
    """One sentence on stderr, and what may be listed below it; returns the exit status."""
    end = "" if "\n" in sentence.rstrip() or sentence.rstrip().endswith(("?", "!", ".")) else "."
    sys.stderr.write(f"kernelgate: {sentence.rstrip()}{end}\n")
    return TROUBLE


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions of a group, or the exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for inner in group.exceptions for leaf in leaves(inner)]


def guarded(command: Callable[[], int]) -> int:
    """Run a command; what the user can mend becomes its sentence, everything else stays a traceback."""
    try:
        return command()
    except MENDABLE as error:
        return say(str(error))
    except BaseExceptionGroup as group:
        found = leaves(group)
        if all(isinstance(error, MENDABLE) for error in found):
            return say("; ".join(str(error) for error in found))
        raise

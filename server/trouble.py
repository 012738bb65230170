"""Ending a command with one sentence on stderr when something outside has to be mended first."""

import sys
from collections.abc import Callable
from typing import Final, cast

from kernelgate.budget.errors import LedgerError
from kernelgate.server.gpus import NoSuchDevice
from kernelgate.tasks.taskfile import TaskError

TROUBLE: Final = 2
"""Exit status."""


def say(sentence: str) -> int:
    """One sentence on stderr; returns the exit status."""
    end = "" if sentence.rstrip().endswith(("?", "!", ".")) else "."
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
    except (LedgerError, TaskError, NoSuchDevice) as error:
        return say(str(error))
    except BaseExceptionGroup as group:
        found = leaves(group)
        if all(isinstance(error, LedgerError | TaskError | NoSuchDevice) for error in found):
            return say("; ".join(str(error) for error in found))
        raise

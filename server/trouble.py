"""Ending a command with one sentence on stderr when something outside has to be mended first."""

import json
import sys
from collections.abc import Callable
from typing import Final, cast

from kernelgate.budget.errors import LedgerError
from kernelgate.server.clients import ConfigError
from kernelgate.server.gpus import NoSuchDevice
from kernelgate.server.settings import SettingsError
from kernelgate.server.tokens import TokenError
from kernelgate.tasks.taskfile import TaskError
from kernelgate.tools.kit.book import ToolMistake

TROUBLE: Final = 2
"""Exit status."""


class Trouble(Exception):
    """Why a command cannot go on: one sentence with what to do."""


MENDABLE: Final = (LedgerError, TaskError, ToolMistake, NoSuchDevice, SettingsError, ConfigError, TokenError, Trouble)
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


def guarded(command: Callable[[], int], *, as_json: bool = False) -> int:
    """Run a command; what the user can mend becomes its sentence, everything else stays a traceback.

    Args:
        command: what to run; returns the exit status.
        as_json: write the sentence on stdout too, as JSON: `ok` is null, since nothing could be looked at.
    """
    try:
        return command()
    except MENDABLE as error:
        return _said(str(error), as_json=as_json)
    except BaseExceptionGroup as group:
        found = leaves(group)
        if all(isinstance(error, MENDABLE) for error in found):
            return _said("; ".join(str(error) for error in found), as_json=as_json)
        raise


def _said(sentence: str, *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(json.dumps({"ok": None, "error": sentence}) + "\n")
    return say(sentence)

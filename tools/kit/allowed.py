"""What a task does not take of a candidate, by its text and by what its forward computes with. Pure."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from kernelgate.tasks.model import Task
from kernelgate.tasks.source_scan import SourceScan

SHOWN_OPERATORS: Final = 6
PACKAGE: Final = "kernelgate"
OWN_KERNELS: Final = frozenset({"torch", "triton"})
"""Beside Python's own modules, what kernels of one's own are written with."""


def why_forbidden(scan: SourceScan, task: Task, files: Collection[str]) -> str:
    """Why a source in files of these names may not be loaded for a task; empty if it may."""
    if PACKAGE in scan.modules:
        return f"it imports {PACKAGE}; a candidate may use torch, triton and its own files"
    if scan.language not in task.languages:
        return f"it is written in {scan.language}; this task takes {', '.join(task.languages)}"
    others = sorted(scan.modules - OWN_KERNELS - sys.stdlib_module_names - {Path(name).stem for name in files})
    if others and not task.allow_library_calls:
        return f"it imports {', '.join(others)}; this task takes kernels of your own alone, with torch and triton"
    return ""


def told_of_library_calls(operators: Sequence[str]) -> str:
    """What a task that forbids them is told against."""
    names = ", ".join(operators[:SHOWN_OPERATORS])
    return (
        f"forward computes with torch's {names}; this task takes kernels of your own alone"
        " (memory, views and copies of torch are free)"
    )

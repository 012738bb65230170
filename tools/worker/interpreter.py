"""Triton's interpreter in a candidate's process on the CPU device: switched on before triton is imported, bounded."""

import importlib
import os
from collections.abc import Callable
from typing import Any, Final

from kernelgate.tools.worker.triton_target import install_standin_driver

MAX_PROGRAMS: Final = 20_000
"""Program instances that one launch may have: the interpreter runs about a thousand small ones a second."""


class TooManyPrograms(RuntimeError):
    """A launch that would keep the interpreter busy for longer than any check lasts."""


def prepare_interpreter(target: str, limit: int = MAX_PROGRAMS) -> None:
    """Set `TRITON_INTERPRET`, give triton a stand-in driver, and bound the grid of a launch.

    Must run before anything imports triton: a switch after its import works by half and then fails in `tl.sum`.
    Touches this process only. Raises ImportError where triton, or numpy for its interpreter, is missing.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    install_standin_driver(target)
    builder: Any = importlib.import_module("triton.runtime.interpreter").interpreter_builder
    original: Callable[..., None] = builder.set_grid_dim

    def bounded(x: int, y: int = 1, z: int = 1) -> None:
        programs = x * y * z
        if programs > limit:
            raise TooManyPrograms(
                f"a launch of {programs:,} programs; the interpreter on a CPU device takes at most {limit:,}: "
                "use larger blocks, or check this candidate on a GPU"
            )
        original(x, y, z)

    builder.set_grid_dim = bounded

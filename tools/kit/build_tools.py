"""The programs that candidates with inline C++ and CUDA are built with, and where they are found."""

import os
import shutil
from collections.abc import Mapping
from typing import Final

BUILD_TOOLS: Final = {"nvcc": ("nvcc",), "ninja": ("ninja",), "a C++ compiler": ("c++", "g++", "clang++")}
"""What is needed → the programs that will do."""
_DEFAULT_HOME: Final = "/usr/local/cuda"


def find_build_tools(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Each of `BUILD_TOOLS` → its path, empty where it is missing; looked for where torch looks.

    Args:
        environ: `CUDA_HOME`, `CUDA_PATH` and `PATH` count.
    """
    homes = [environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in environ] or [_DEFAULT_HOME]
    path = os.pathsep.join((*(f"{home}/bin" for home in homes), environ.get("PATH", "")))
    return {
        name: next((found for program in programs if (found := shutil.which(program, path=path))), "")
        for name, programs in BUILD_TOOLS.items()
    }

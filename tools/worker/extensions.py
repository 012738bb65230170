"""Extensions in C++ and CUDA that a candidate had torch build: which there are.

The candidate's process wrote them, so all in them is hostile by assumption.
"""

from pathlib import Path
from typing import Final

from kernelgate.tools.worker.binaries import entries

MAX_EXTENSIONS: Final = 32
MAX_FILES: Final = 200
SUFFIX: Final = ".so"


def built_in(cache: Path) -> tuple[str, ...]:
    """Names of the extensions with a shared object in a folder as `TORCH_EXTENSIONS_DIR` names it, sorted."""
    return tuple(file.name.removesuffix(SUFFIX) for file in shared_objects(cache))


def shared_objects(cache: Path) -> list[Path]:
    """Plain files only, one folder deep, where torch puts them: `NAME/NAME.so`."""
    return [
        file
        for folder in entries(cache, MAX_EXTENSIONS, folders=True)
        for file in entries(folder, MAX_FILES, folders=False)
        if file.suffix == SUFFIX
    ]

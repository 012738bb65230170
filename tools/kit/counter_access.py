"""What reading a GPU's counters takes: a library that lies apart, and a driver that lets anybody. Pure."""

from pathlib import Path
from typing import Final

CUPTI_PYTHON: Final = "cupti-python>=13.3"
OPENED: Final = "NVreg_RestrictProfilingToAdminUsers=0"
"""Option of NVIDIA's kernel module."""
ADMINISTRATORS_ONLY: Final = f"the driver lets only administrators read counters; its option {OPENED} opens them"


def counters_folder(data_dir: Path) -> Path:
    """Where cupti-python may lie apart from this environment, whose torch asks for another version of its library."""
    return data_dir / "counters"


def how_to_install(folder: Path | str) -> str:
    """A command."""
    return f"pip install --target {folder} '{CUPTI_PYTHON}'"

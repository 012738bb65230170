"""Imported first by programs of this folder: finds the package beside it where it is not installed."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
try:
    import kernelgate  # noqa: F401 -- is it installed?
except ImportError:
    sys.path.insert(0, str(ROOT / ".dev"))

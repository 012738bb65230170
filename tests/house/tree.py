"""The tree as git sees it."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("server", "tools", "budget", "tasks")


@cache
def tracked(*folders: str) -> tuple[str, ...]:
    """What git has or would take under these folders (all without any), as paths from the root; no links."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = {name for name in listed.stdout.split("\0") if name}
    return tuple(sorted(name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()))

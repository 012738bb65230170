"""The corpus as data: each file is a candidate, and the comment at its head says what it tries and what may come of it.

The head is TOML behind `# `, up to the first line that is none. Further files of a candidate lie beside it as
`<name>.<file>`, in the head as `files = ["helper.py"]`.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from kernelgate.budget.model import Code

FOLDER = Path(__file__).parent
HOSTILE, HONEST = FOLDER / "hostile", FOLDER / "honest"
CODES: tuple[str, ...] = get_args(Code)
"""The classes, from the one place that lists them."""
RUNGS = {
    "compile": ("compile",),
    "check": ("check_correctness",),
    "quick": ("check_correctness", "quick_time"),
    "precise": ("check_correctness", "precise_time"),
    "profile": ("check_correctness", "profile"),
}
"""Rung → the tools that are called up to it."""
NEVER = frozenset({"faster", "maybe_faster"})
"""What no trick may end as on the rungs that time."""


@dataclass(frozen=True)
class Case:
    """One candidate."""

    name: str
    files: dict[str, str]
    tries: str
    """What it does, one sentence."""
    code: str = ""
    """Its class; empty for an honest one."""
    task: str = "softmax"
    rung: str = "check"
    """On which it must fail at the latest."""
    accept: tuple[str, ...] = ()
    """`verdict` or `verdict:CODE`: what may come of it there, or on a rung before."""
    device: Literal["cpu", "gpu", "both"] = "both"
    long: bool = False
    """A variant of a class that another file stands for in each run."""
    cap_s: float = 30.0
    log_limit: int = 0
    """Where the trick is about output: so many characters of it may be kept."""
    forbid_library_calls: bool = False
    plan: dict[str, Any] = field(default_factory=dict)

    def accepts(self, verdict: str, code: str | None) -> bool:
        """Whether an outcome is one of those that are right."""
        return verdict in self.accept or f"{verdict}:{code}" in self.accept


def read(path: Path) -> Case:
    """One file; raises where its head is not what a case needs."""
    text = path.read_text(encoding="utf-8")
    head = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        head.append(line.removeprefix("#").removeprefix(" "))
    told = tomllib.loads("\n".join(head))
    files = {"candidate.py": text}
    for name in told.pop("files", ()):
        files[name] = path.with_name(f"{path.stem}.{name}").read_text(encoding="utf-8")
    return Case(name=path.stem, files=files, accept=tuple(told.pop("accept", ())), **told)


def cases(folder: Path) -> list[Case]:
    """All of a folder, by name."""
    return [read(path) for path in sorted(folder.glob("*.py")) if "." not in path.stem]

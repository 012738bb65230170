"""`kernelgate plugin`: the plugin and the skill of this installation, in a folder that clients install from."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from kernelgate.server import clients
from kernelgate.server.preflight import make_data_folder, require
from kernelgate.server.settings import Settings
from kernelgate.server.trouble import Trouble, guarded

SHIPPED: Final = Path(__file__).resolve().parent / "agent_plugin"
"""Works as it is where `kernelgate` is on the client's path."""
HINT: Final = """Claude Code, server and skill:  claude plugin install kernelgate --marketplace {folder}
Gemini CLI, the skill:          gemini skills install {folder}/skills/kernelgate
Codex and others, the skill:    mkdir -p ~/.agents/skills && cp -r {folder}/skills/kernelgate ~/.agents/skills/
Any other agent:                cat {folder}/agents-snippet.md >> AGENTS.md
"""


def run_plugin(settings: Settings, arguments: Sequence[str]) -> int:
    """Make the folder anew and print its path, alone on stdout: `--marketplace "$(kernelgate plugin)"`."""

    def making() -> int:
        make_data_folder(settings)
        require(settings)
        folder = make_plugin(settings.data_dir / "plugin", arguments)
        click.echo(folder)
        if sys.stdout.isatty():
            click.echo(HINT.format(folder=folder), err=True, nl=False)
        return 0

    return guarded(making)


def make_plugin(folder: Path, arguments: Sequence[str]) -> Path:
    """A copy of what ships, whose server is this very installation, with these arguments of `serve`.

    Raises:
        Trouble: the folder cannot be written.
    """
    command = clients.serve_command(arguments)
    entry = clients.client_config("claude-code", command, clients.carried_environment(os.environ)).text
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".plugin.") as made:
            # A client that reads at the same moment finds the old one, the new one or none, never half of one.
            new = Path(made) / "new"
            shutil.copytree(SHIPPED, new)
            (new / ".mcp.json").write_text(entry, encoding="utf-8")
            if folder.exists():
                folder.rename(Path(made) / "old")
            new.rename(folder)
    except OSError as error:
        raise Trouble(f"the plugin cannot be made in {folder.parent}: {error.strerror or error}") from None
    return folder

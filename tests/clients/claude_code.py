"""Claude Code without an account: the command that `kernelgate config` prints, and its health check."""

import shlex
from collections.abc import Iterator
from typing import Final

from node_box import NodeBox, Seen

PACKAGE: Final = "@anthropic-ai/claude-code"


def look(box: NodeBox) -> Iterator[Seen]:
    """Add the server for the user as the printed line says, then for a project by its file."""
    version = box.install(PACKAGE)

    def seen(step: str, words: str, *, ok: bool) -> Seen:
        return Seen("Claude Code", version, step, ok, words)

    shown = box.run(box.kernelgate("config", "claude-code", *box.served()))
    line = shlex.split(shown.stdout.strip().splitlines()[-1])
    added = box.run([box.program(line[0]), *line[1:]])
    said = "added to the user's configuration" if added.status == 0 else added.text
    yield seen("the line of `kernelgate config claude-code`", said, ok=added.status == 0)
    listed = box.run([box.program("claude"), "mcp", "list"])
    health = [said for said in listed.text.splitlines() if said.startswith("kernelgate:")]
    yield seen("claude mcp list", _end(health), ok="✔ Connected" in "".join(health))
    box.run([box.program("claude"), "mcp", "remove", "--scope", "user", "kernelgate"])

    written = box.run(box.kernelgate("config", "claude-code", "--write", *box.served()))
    listed = box.run([box.program("claude"), "mcp", "list"])
    health = [said for said in listed.text.splitlines() if said.startswith("kernelgate:")]
    ok = written.status == 0 and "Pending approval" in "".join(health)
    yield seen("`kernelgate config claude-code --write`, claude mcp list", _end(health), ok=ok)
    (box.project / ".mcp.json").unlink()


def _end(health: list[str]) -> str:
    return health[0].rpartition(" - ")[2] if health else "the server is not listed"

"""Claude Code without an account: what `kernelgate config` prints, its health check, tool calls, the plugin."""

import shlex
from collections.abc import Iterator
from typing import Final

from canned_model import ASKED, canned_model, seen_in_session
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
    yield from _in_a_session(box, version)
    yield from _as_a_plugin(box, version)


def _in_a_session(box: NodeBox, version: str) -> Iterator[Seen]:
    """A real session, in which a canned model calls our tools."""
    box.run(box.kernelgate("config", "claude-code", "--write", *box.served()))
    names = [f"mcp__kernelgate__{tool}" for tool, _ in ASKED]
    with canned_model(*zip(names, (arguments for _, arguments in ASKED), strict=True)) as model:
        words = ["-p", "go", "--mcp-config", ".mcp.json", "--strict-mcp-config", "--output-format", "json"]
        reach = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none"}
        done = box.run([box.program("claude"), *words, "--allowedTools", *names], more=reach)
    yield from seen_in_session("Claude Code", version, model, done)
    (box.project / ".mcp.json").unlink()


def _as_a_plugin(box: NodeBox, version: str) -> Iterator[Seen]:
    claude = box.program("claude")
    folder = box.run(box.kernelgate("plugin", *box.served())).stdout.strip()
    checked = box.run([claude, "plugin", "validate", "--strict", folder])
    words = "passed" if checked.status == 0 else checked.text
    yield Seen("Claude Code", version, "claude plugin validate --strict", checked.status == 0, words)
    installed = box.run([claude, "plugin", "install", "kernelgate", "--marketplace", folder])
    health = [said for said in box.run([claude, "mcp", "list"]).text.splitlines() if "plugin:kernelgate" in said]
    details = box.run([claude, "plugin", "details", "kernelgate"]).text
    ok = installed.status == 0 and "✔ Connected" in "".join(health) and "Skills (1)  kernelgate" in details
    step = 'claude plugin install kernelgate --marketplace "$(kernelgate plugin)"'
    yield Seen("Claude Code", version, step, ok, f"one skill; its server in claude mcp list: {_end(health)}")


def _end(health: list[str]) -> str:
    return health[0].rpartition(" - ")[2] if health else "the server is not listed"

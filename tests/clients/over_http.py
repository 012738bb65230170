"""Real clients over HTTP with a token, by what `kernelgate config --http` says: health check, calls where they can."""

import socket
from collections.abc import Iterator
from typing import Final

import claude_code
import codex
import gemini_cli
import inspector
from conformance import serving
from node_box import NodeBox, Seen

NAME: Final = "kernelgate"
VARIABLE: Final = "KERNELGATE_TOKEN"


def look(box: NodeBox) -> Iterator[Seen]:
    """A server that asks for a token, and clients with it, with none and with a wrong one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"
    token = box.run(box.kernelgate("tokens", "add", "clients", "--data", str(box.data), "--url", url)).stdout.split()[
        -1
    ]
    at = url.removeprefix("http://").removesuffix("/mcp")
    command = box.kernelgate("serve", "--http", at, "--require-token", *box.served())
    with serving(command, box.data / "over_http.stderr") as there:
        assert there == url
        yield from _claude(box, url, token)
        yield from _codex(box, url, token)
        yield from _gemini(box, url, token)
        yield from _inspector(box, url, token)


def _claude(box: NodeBox, url: str, token: str) -> Iterator[Seen]:
    version, claude = box.install(claude_code.PACKAGE), box.program("claude")
    for said, secret, mark in (("a token", token, "✔ Connected"), ("a wrong token", "wrong", "✘")):
        known = {VARIABLE: secret}
        shown = box.run(box.kernelgate("config", "claude-code", "--http", url), more=known)
        line = shown.stdout.strip().splitlines()[-1].strip().replace("claude", claude, 1)
        box.run(["bash", "-c", line], more=known)  # the shell fills the token in, as it does for a person
        health = [line for line in box.run([claude, "mcp", "list"]).text.splitlines() if line.startswith(f"{NAME}:")]
        end = health[0].rpartition(" - ")[2] if health else "not listed"
        step = f"over HTTP with {said}: the line of `kernelgate config claude-code --http URL`, claude mcp list"
        yield Seen("Claude Code", version, step, mark in end, end)
        box.run([claude, "mcp", "remove", "--scope", "user", NAME])


def _codex(box: NodeBox, url: str, token: str) -> Iterator[Seen]:
    version = box.install(codex.PACKAGE)
    box.run(box.kernelgate("config", "codex", "--http", url, "--write"), more={VARIABLE: token})
    with codex.app_server(box, {VARIABLE: token}) as app:
        thread = codex.thread_of(app, str(box.project))
        result = codex.call(app, thread, NAME, "get_task", {"task": "softmax"})
    box.run([box.program("codex"), "mcp", "remove", NAME])
    structure = result.get("structuredContent") or {}
    step = "over HTTP: `kernelgate config codex --http URL --write`, app-server, mcpServer/tool/call get_task"
    yield Seen(
        "Codex CLI", version, step, structure.get("status") == "ok", structure.get("summary") or str(result)[:200]
    )


def _gemini(box: NodeBox, url: str, token: str) -> Iterator[Seen]:
    version, gemini = box.install(gemini_cli.PACKAGE), box.program("gemini")
    known = {VARIABLE: token}
    box.run(box.kernelgate("config", "gemini-cli", "--http", url, "--write"), more=known)
    listed = box.run([gemini, "mcp", "list"], more={**gemini_cli.TRUSTED, **known}).text.splitlines()
    ends = [line.rpartition(" - ")[2] for line in listed if f"{NAME}: " in line]
    box.run([gemini, "mcp", "remove", "--scope", "user", NAME])
    step = "over HTTP: `kernelgate config gemini-cli --http URL --write`, gemini mcp list"
    yield Seen("Gemini CLI", version, step, ends == ["Connected"], ", ".join(ends) or "not listed")


def _inspector(box: NodeBox, url: str, token: str) -> Iterator[Seen]:
    version = box.install(inspector.PACKAGE)
    ask = [box.program("mcp-inspector"), "--cli", url, "--transport", "http", "--method", "tools/list"]
    with_token = box.run([*ask, "--header", f"Authorization: Bearer {token}", "--format", "json"])
    count = len(inspector.result_of(with_token).get("tools", []))
    yield Seen(
        "MCP Inspector CLI", version, "over HTTP with a token: tools/list", count == inspector.COUNT, f"{count} tools"
    )
    without = box.run([*ask, "--format", "json"])
    ok = without.status != 0 and not inspector.result_of(without)
    yield Seen("MCP Inspector CLI", version, "over HTTP without a token", ok, f"refused, status {without.status}")

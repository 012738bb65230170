"""Real clients over HTTP with a token: each client's own command for it, its health check, and calls where it can."""

import socket
from collections.abc import Iterator
from typing import Final

import claude_code
import codex
import gemini_cli
import inspector
from conformance import serving
from node_box import NodeBox, Seen

NAME: Final = "overhttp"
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
        header = f"Authorization: Bearer {secret}"
        box.run([claude, "mcp", "add", "--scope", "user", "--transport", "http", NAME, url, "--header", header])
        health = [line for line in box.run([claude, "mcp", "list"]).text.splitlines() if line.startswith(f"{NAME}:")]
        end = health[0].rpartition(" - ")[2] if health else "not listed"
        step = f"over HTTP with {said}: claude mcp add --transport http NAME URL --header …, claude mcp list"
        yield Seen("Claude Code", version, step, mark in end, end)
        box.run([claude, "mcp", "remove", "--scope", "user", NAME])


def _codex(box: NodeBox, url: str, token: str) -> Iterator[Seen]:
    version = box.install(codex.PACKAGE)
    box.run([box.program("codex"), "mcp", "add", NAME, "--url", url, "--bearer-token-env-var", VARIABLE])
    with codex.app_server(box, {VARIABLE: token}) as app:
        thread = codex.thread_of(app, str(box.project))
        result = codex.call(app, thread, NAME, "get_task", {"task": "softmax"})
    box.run([box.program("codex"), "mcp", "remove", NAME])
    structure = result.get("structuredContent") or {}
    step = "over HTTP: codex mcp add NAME --url URL --bearer-token-env-var …, app-server, mcpServer/tool/call get_task"
    yield Seen(
        "Codex CLI", version, step, structure.get("status") == "ok", structure.get("summary") or str(result)[:200]
    )


def _gemini(box: NodeBox, url: str, token: str) -> Iterator[Seen]:
    version, gemini = box.install(gemini_cli.PACKAGE), box.program("gemini")
    header = f"Authorization: Bearer {token}"
    box.run([gemini, "mcp", "add", "--scope", "user", "--transport", "http", "--header", header, NAME, url])
    listed = box.run([gemini, "mcp", "list"], more=gemini_cli.TRUSTED).text.splitlines()
    ends = [line.rpartition(" - ")[2] for line in listed if f"{NAME}: " in line]
    box.run([gemini, "mcp", "remove", "--scope", "user", NAME])
    step = "over HTTP: gemini mcp add --transport http --header … NAME URL, gemini mcp list"
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

"""Codex without an account: its list, and a call of our tools through its app server, which needs no model."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from node_box import CALL_LIMIT_S, NodeBox, Seen

from kernelgate.tools.kit.catalogue import find_tools

PACKAGE: Final = "@openai/codex"
RESOURCE: Final = "kernelgate://tasks/softmax"
NOWHERE: Final = (
    "-c",
    'model_provider="none"',
    "-c",
    'model_providers.none={name="none",base_url="http://127.0.0.1:9/v1"}',
)
"""No model is asked, and Codex looks for none outside this machine."""


class AppServer:
    """Codex's app server, spoken to over its pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._number = 0

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its result; an error's message stands under `error`."""
        self._number += 1
        self.tell({"id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._number and "method" not in message:
                result: dict[str, Any] = message.get("result") or {"error": message["error"]["message"]}
                return result
        return {"error": "the app server left"}


def look(box: NodeBox) -> Iterator[Seen]:
    """Write the entry, list it, and call tools through a thread without a model."""
    version = box.install(PACKAGE)

    def seen(step: str, words: str, *, ok: bool) -> Seen:
        return Seen("Codex CLI", version, step, ok, words)

    written = box.run(box.kernelgate("config", "codex", "--write", *box.served()))
    listed = box.run([box.program("codex"), "mcp", "list"])
    lines = [line for line in listed.stdout.splitlines() if line.startswith("kernelgate ")]
    ok = written.status == 0 and listed.status == 0 and "enabled" in "".join(lines)
    yield seen("`kernelgate config codex --write`, codex mcp list", "enabled" if ok else listed.text, ok=ok)
    got = box.run([box.program("codex"), "mcp", "get", "kernelgate"])
    yield seen("codex mcp get: the time-out that the entry raises", "660 s", ok="tool_timeout_sec: 660" in got.text)

    plugin = box.run(box.kernelgate("plugin", *box.served())).stdout.strip()
    shutil.copytree(f"{plugin}/skills/kernelgate", box.home / ".agents/skills/kernelgate", dirs_exist_ok=True)
    with app_server(box) as codex:
        thread = thread_of(codex, str(box.project))
        servers = codex.ask("mcpServerStatus/list", {"threadId": thread}).get("data", [])
        ours = next((server for server in servers if server["name"] == "kernelgate"), {"tools": {}})
        names = sorted(ours["tools"])
        ok = names == [tool.name for tool in find_tools()]
        yield seen("app-server, mcpServerStatus/list", f"{len(names)} tools", ok=ok)
        rows = codex.ask("skills/list", {"cwds": [str(box.project)]}).get("data", [])
        ok = any(skill["name"] == "kernelgate" and skill["enabled"] for row in rows for skill in row["skills"])
        yield seen("the skill in ~/.agents/skills, app-server, skills/list", "enabled" if ok else "not there", ok=ok)
        for tool in ("get_task", "start_run"):
            result = call(codex, thread, "kernelgate", tool, {"task": "softmax"})
            structure = result.get("structuredContent") or {}
            said = structure.get("summary") or str(result)[:200]
            yield seen(f"app-server, mcpServer/tool/call {tool}", said, ok=structure.get("status") == "ok")
        read = codex.ask("mcpServer/resource/read", {"threadId": thread, "server": "kernelgate", "uri": RESOURCE})
        ok = bool(read.get("contents"))
        yield seen(f"app-server, mcpServer/resource/read {RESOURCE}", "its text" if ok else str(read)[:200], ok=ok)


@contextmanager
def app_server(box: NodeBox, more: Mapping[str, str] | None = None) -> Iterator[AppServer]:
    """An app server that has been greeted."""
    with subprocess.Popen(
        [box.program("codex"), "app-server", *NOWHERE], cwd=box.project, env=box.environment(**(more or {})),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            codex = AppServer(process)
            codex.ask("initialize", {"clientInfo": {"name": "kernelgate-clients", "version": "1"}})
            codex.tell({"method": "initialized"})
            yield codex
            assert process.stdin is not None
            process.stdin.close()
            process.wait(CALL_LIMIT_S)
        finally:
            process.kill()


def thread_of(codex: AppServer, folder: str) -> str:
    """A new thread's id; no model is asked for it."""
    return str(codex.ask("thread/start", {"cwd": folder}).get("thread", {}).get("id", ""))


def call(codex: AppServer, thread: str, server: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool as a model would have it called."""
    asked = {"threadId": thread, "server": server, "tool": tool, "arguments": arguments}
    return codex.ask("mcpServer/tool/call", asked)

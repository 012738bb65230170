"""A real server over HTTP in a process of its own, and clients of it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

START_S = 60.0


@dataclass
class HttpServer:
    """One that listens."""

    process: "subprocess.Popen[str]"
    url: str
    said: str

    def ask(self, method: str = "POST", path: str = "/mcp", **rest: Any) -> httpx2.Response:
        """One bare request."""
        return httpx2.request(method, self.url.removesuffix("/mcp") + path, timeout=30.0, **rest)

    def leave(self, number: int = signal.SIGTERM) -> int:
        """End it with a signal; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=10)


def rpc(method: str, request_id: int = 1, **params: Any) -> dict[str, Any]:
    """A request of the older versions of the protocol."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@contextlib.contextmanager
def serving(
    folder: Path, *more: str, at: str = "127.0.0.1:0", env: Mapping[str, str] | None = None, plant: str = ""
) -> Generator[HttpServer]:
    """Start one on the CPU device, after `plant` was run in its process; it is killed at the end if it has not left."""
    program = f"{plant}\nfrom kernelgate.server.cli import main\nmain()"
    command: Sequence[str] = [
        sys.executable, "-P", "-c", program, "serve", "--http", at, "--data", str(folder), "--device", "cpu", *more,
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.match(r"kernelgate serves (\S+)", said)
        assert found is not None, said + process.stderr.read()
        yield HttpServer(process, found[1], said)
    finally:
        process.kill()
        process.wait(timeout=10)
        process.stderr.close()


@contextlib.asynccontextmanager
async def client_of(url: str, token: str = "", mode: Any = "auto") -> AsyncGenerator[Client]:
    """A real MCP client."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120.0) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structure of a reply; of a refused call `error`."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        return {"error": "".join(part.text for part in result.content if isinstance(part, TextContent))}
    found: Any = result.structured_content
    return dict(found)

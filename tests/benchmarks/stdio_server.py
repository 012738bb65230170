"""A server over stdio for the benchmarks: started, greeted and asked with nothing in between that costs time."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOFTMAX = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {body}\n"


class StdioServer:
    """One server process and its line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One request and its result."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while True:
            answer: dict[str, Any] = json.loads(self.process.stdout.readline())
            if answer.get("id") == self._number:
                result: dict[str, Any] = answer["result"]
                return result

    def greet(self) -> None:
        """The handshake."""
        client = {"name": "benchmark", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        assert self.process.stdin is not None
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.process.stdin.flush()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool call that must not be an error; its structure."""
        result = self.ask("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            raise RuntimeError(result["content"][0]["text"])
        structure: dict[str, Any] = result["structuredContent"]
        return structure

    def resident_mb(self) -> float:
        """Resident memory of the server process alone."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


@contextmanager
def stdio_server(
    data_dir: Path, device: str = "cpu", more: tuple[str, ...] = (), *,
    before: Sequence[str] = (), environment: Mapping[str, str] | None = None,
) -> Iterator[StdioServer]:  # fmt: skip
    """A server on a data folder; killed at the end. `before`: a program that becomes the server."""
    command = [
        *before,
        sys.executable,
        "-m",
        "kernelgate.server",
        "serve",
        "--data",
        str(data_dir),
        "--device",
        device,
        *more,
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        try:
            yield StdioServer(process)
        finally:
            process.kill()


def milliseconds(work: Any) -> float:
    """Wall clock of a call."""
    began_s = time.perf_counter()
    work()
    return (time.perf_counter() - began_s) * 1e3

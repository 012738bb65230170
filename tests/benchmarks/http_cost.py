"""What a request costs over stdio and HTTP: at rest, while a measurement runs, and beside 50 clients that wait.

Writes http_cost.json. Idle and loaded readings alternate in one run, since the host's speed changes; ratios are of
medians from the same minutes. Bounded, on the loopback address.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskGroup
from measurement import plain_python_loop_ms, with_pace, write_measurement
from stdio_server import milliseconds, stdio_server

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from http_server import HEADERS, call, client_of, rpc, serving
from live_server import forward

REQUESTS = 200
ROUNDS = 3
WAITING = 50
SLOW = forward("import time\ntime.sleep(0.4)\nreturn torch.softmax(x, dim=-1)  # {number}")
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}


class Line:
    """One HTTP connection with a session, and nothing of a client between it and the clock."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx2.Client(headers=HEADERS, timeout=60.0)
        begun = self._http.post(url, json=rpc("initialize", **HELLO))
        self._http.headers |= {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-06-18"}
        self._http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ping(self) -> None:
        self._http.post(self._url, json=rpc("ping")).raise_for_status()


def readings(ask: Callable[[], object]) -> list[float]:
    """Milliseconds of so many requests, one after the other."""
    for _ in range(20):
        ask()
    return [milliseconds(ask) for _ in range(REQUESTS)]


async def measuring(client: Any, run_id: str, number: int) -> str:
    """Start a candidate that keeps the device for some seconds; its job."""
    reply = await call(
        client, "compile", run_id=run_id, source=SLOW.format(number=number), up_to="quick_time", wait_s=0
    )
    return str(reply["job_id"])


async def wait_for(url: str, job_id: str, group: TaskGroup) -> None:
    """A client that does nothing but wait for a job; gone when the group is cancelled."""
    async with client_of(url) as client:
        while True:
            await call(client, "job", job_id=job_id, wait_s=60)


async def http_figures(folder: Path) -> dict[str, list[float]]:
    """Alternately at rest, while something is measured, and beside many that wait for it."""
    found: dict[str, list[float]] = {"http_idle": [], "http_measuring": [], "http_waiting": []}
    with serving(folder) as server:
        line = await anyio.to_thread.run_sync(Line, server.url)
        async with client_of(server.url) as client:
            run_id = (await call(client, "start_run", task="softmax", device_s=120))["run"]["run_id"]
            for number in range(ROUNDS):
                found["http_idle"] += await anyio.to_thread.run_sync(readings, line.ping)
                job_id = await measuring(client, run_id, number)
                found["http_measuring"] += await anyio.to_thread.run_sync(readings, line.ping)
                async with anyio.create_task_group() as group:
                    for _ in range(WAITING):
                        group.start_soon(wait_for, server.url, job_id, group)
                    await anyio.sleep(3)
                    found["http_waiting"] += await anyio.to_thread.run_sync(readings, line.ping)
                    group.cancel_scope.cancel()
                await call(client, "job", job_id=job_id, action="cancel", wait_s=30)
    return found


def stdio_figures(folder: Path) -> dict[str, list[float]]:
    """The same at rest and while something is measured."""
    found: dict[str, list[float]] = {"stdio_idle": [], "stdio_measuring": []}
    with stdio_server(folder) as server:
        server.greet()
        run_id = server.call("start_run", task="softmax", device_s=120)["run"]["run_id"]
        for number in range(ROUNDS):
            found["stdio_idle"] += readings(lambda: server.ask("ping"))
            job_id = server.call(
                "compile", run_id=run_id, source=SLOW.format(number=f"stdio {number}"), up_to="quick_time", wait_s=0
            )["job_id"]
            time.sleep(1)  # it compiles first
            found["stdio_measuring"] += readings(lambda: server.ask("ping"))
            server.call("job", job_id=job_id, action="cancel", wait_s=30)
    return found


def main() -> None:
    """Measure and write."""
    before_ms = plain_python_loop_ms()
    with tempfile.TemporaryDirectory() as scratch:
        raw = stdio_figures(Path(scratch, "stdio")) | anyio.run(http_figures, Path(scratch, "http"))
    middle = {name: statistics.median(values) for name, values in raw.items()}
    figures = {
        "noop_stdio_ms_median": middle["stdio_idle"],
        "noop_http_ms_median": middle["http_idle"],
        "noop_stdio_while_measuring_ratio": middle["stdio_measuring"] / middle["stdio_idle"],
        "noop_http_while_measuring_ratio": middle["http_measuring"] / middle["http_idle"],
        "noop_http_beside_50_waiting_ratio": middle["http_waiting"] / middle["http_measuring"],
    }
    rounded: dict[str, int | float] = {name: round(value, 4) for name, value in figures.items()}
    write_measurement("http_cost", *with_pace(rounded, {**raw}, before_ms))


if __name__ == "__main__":
    main()

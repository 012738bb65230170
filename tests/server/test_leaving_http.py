"""The HTTP server at its end: it tells who waits, and leaves nothing behind; without a parent it goes on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from http_server import call, client_of, serving
from test_http import SLOW

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.tools.worker import processes

PARENT = """
import json, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
print(json.dumps([child.pid, child.stderr.readline().split()[2]]), flush=True)
sys.stdin.read()
"""


@pytest.mark.anyio
@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGINT])
async def test_told_to_leave_at_work_it_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    with serving(tmp_path) as server:
        async with client_of(server.url) as client:
            run_id = (await call(client, "start_run", task="softmax"))["run"]["run_id"]
            begun = await call(client, "compile", run_id=run_id, source=SLOW, up_to="quick_time", wait_s=0)
            assert begun["status"] == "running"
            with anyio.fail_after(60):
                while (await call(client, "job", job_id=begun["job_id"], wait_s=1))["job"]["stage"] == "starting":
                    pass
        children = [os.pidfd_open(pid) for pid in processes.descendants(server.process.pid)]
        assert children
        assert server.leave(number) == 0
        for child in children:
            with anyio.fail_after(5):
                await anyio.wait_readable(child)
            os.close(child)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.open_holds(run_id) == ()
    report = audit(tmp_path / "ledger.db")
    assert report.ok, report.findings


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("number", "mode"), [(signal.SIGTERM, "auto"), pytest.param(signal.SIGINT, "legacy", marks=pytest.mark.long)]
)
async def test_who_waits_while_the_server_is_told_to_leave_is_told_so(tmp_path: Path, number: int, mode: str) -> None:
    said: list[str] = []
    with serving(tmp_path) as server:
        async with client_of(server.url, mode=mode) as client, client_of(server.url) as other:
            run_id = (await call(client, "start_run", task="softmax"))["run"]["run_id"]
            asked = {"run_id": run_id, "source": SLOW, "up_to": "quick_time", "wait_s": 60}

            async def waiting() -> None:
                said.append((await call(client, "compile", **asked))["error"])

            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    group.start_soon(waiting)
                    while not (await call(other, "get_budget", run_id=run_id))["run"]["remaining"]["held_device_s"]:
                        pass
                    server.process.send_signal(number)
        assert server.process.wait(timeout=10) == 0
    assert said[0].startswith("The server was told to stop and answers no more calls: what was under way is cancelled")
    with serving(tmp_path) as server:
        async with client_of(server.url) as client:
            resumed = await call(client, "start_run", task="softmax", resume=run_id)
            assert resumed["run"]["open"]


def orphaned(command: list[str]) -> tuple[str, int]:
    """A server whose parent is killed once it listens: its address, and a descriptor of its process."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, url = json.loads(parent.stdout.readline())
        server = os.pidfd_open(pid)
        parent.kill()
    return url, server


@pytest.mark.anyio
async def test_a_server_whose_parent_is_gone_serves_on_until_it_is_told_to_leave(tmp_path: Path) -> None:
    serve = ["serve", "--http", "0", "--data", str(tmp_path), "--device", "cpu"]
    command = [sys.executable, "-P", "-m", "kernelgate.server", *serve]
    url, gone = orphaned(command)
    try:
        async with client_of(url) as client:
            run_id = (await call(client, "start_run", task="softmax"))["run"]["run_id"]  # seconds: the task is tried
            assert (await call(client, "get_budget", run_id=run_id))["run"]["open"]
    finally:
        signal.pidfd_send_signal(gone, signal.SIGTERM)
        with anyio.fail_after(10):
            await anyio.wait_readable(gone)
        os.close(gone)

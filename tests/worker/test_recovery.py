"""What happens when a supervisor or its server dies, or when it must not fork: nothing is left, nothing is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from supervised import gone, ignore, make_request, make_runner

import kernelgate
from kernelgate.tools.kit.runner import SupervisorRunner
from kernelgate.tools.kit.wire import WorkerReply
from kernelgate.tools.worker import processes

pytestmark = pytest.mark.anyio

HELLO = "def main(): return 42\n"
HANG = "import threading\ndef hang(): threading.Event().wait()\n"
DAEMON = """
import os, signal
def main():
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, b"up")
            while True: signal.pause()
        os._exit(0)
    os.wait()
    return os.read(read, 2).decode()
"""


@pytest.fixture(params=["namespaces", "landlock only"])
async def runner(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SupervisorRunner]:
    made = make_runner(tmp_path, namespaces=request.param == "namespaces")
    yield made
    await made.close()


def family(runner: SupervisorRunner) -> set[int]:
    assert runner.supervisor_pid is not None
    return set(processes.descendants(runner.supervisor_pid))


def start_server(folder: Path) -> "subprocess.Popen[str]":
    """A server process whose one call hangs; it prints the supervisor's number when the call has begun."""
    script = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom supervised import *\n"
        "async def main():\n"
        "    runner = make_runner(Path(sys.argv[1]))\n"
        "    def begun(_): print(runner.supervisor_pid, flush=True)\n"
        f"    await runner.run(make_request(Path(sys.argv[1]) / 'state', {HANG!r}, 'hang'), begun)\n"
        "asyncio.run(main())\n"
    )
    path = os.pathsep.join([*(str(Path(root).parent) for root in kernelgate.__path__), str(Path(__file__).parent)])
    return subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_a_killed_supervisor_leaves_no_orphan(runner: SupervisorRunner, tmp_path: Path) -> None:
    begun = anyio.Event()
    replies: list[WorkerReply] = []

    async def run() -> None:
        request = make_request(tmp_path / "state", DAEMON + HANG, "main", "STOP", "CONT", "hang")
        replies.append(await runner.run(request, lambda _: begun.set()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await begun.wait()
        pid = runner.supervisor_pid
        assert pid is not None
        descriptors = [os.pidfd_open(member) for member in family(runner)]
        assert len(descriptors) >= 4
        os.kill(pid, signal.SIGKILL)
        assert await gone(descriptors, 3.0)
    assert "ended unexpectedly" in replies[0].fault
    assert (await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)).facts == [42]
    for descriptor in descriptors:
        os.close(descriptor)


async def test_a_supervisor_whose_server_is_gone_leaves_within_two_seconds(tmp_path: Path) -> None:
    server = start_server(tmp_path)
    assert server.stdout is not None
    pid = int(server.stdout.readline())
    descriptors = [os.pidfd_open(member) for member in (pid, *processes.descendants(pid))]
    assert len(descriptors) == 5
    server.kill()
    server.wait()
    server.stdout.close()
    assert await gone(descriptors, 2.0)
    for descriptor in descriptors:
        os.close(descriptor)


async def test_a_supervisor_with_a_second_thread_replaces_itself_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"] + ":/second-thread")
    runner = make_runner(tmp_path, namespaces=False)  # between two pid namespaces the kernel starts no thread
    await runner.hello()
    pid = runner.supervisor_pid
    assert pid is not None
    before = command_line(pid)
    reply = await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)
    assert (reply.facts, reply.fault) == ([42], "")
    assert runner.supervisor_pid == pid
    assert b"--resumed" not in before
    assert b"--resumed" in command_line(pid)
    assert (await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)).facts == [42]
    await runner.close()

"""The server's side of a supervisor: started when needed, ended when idle or broken, never in the way of the loop."""

import os
import signal
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from fakes import FakeRunner
from supervised import CPU, ignore, make_request, make_runner

from kernelgate.tools.kit.runner import Runner, RunnerClosed, SupervisorOptions, SupervisorRunner, SupervisorUnavailable
from kernelgate.tools.kit.wire import ChildExit, Progress, WorkerReply

pytestmark = pytest.mark.anyio

HELLO = "def main(): return 42\n"
HANG = "import threading\ndef main(): threading.Event().wait()\n"


async def ended(pid: int, limit_s: float = 5.0) -> None:
    """Wait for a process to end; bounded."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(limit_s):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def test_the_supervisor_starts_at_the_first_use_and_stays(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    assert runner.supervisor_pid is None
    hello = await runner.hello()
    assert hello.pid == runner.supervisor_pid
    assert (await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)).facts == [42]
    assert hello.pid == runner.supervisor_pid
    await runner.close()
    await ended(hello.pid)


async def test_nothing_runs_without_the_walls_that_are_required(tmp_path: Path) -> None:
    open_to_the_network = make_runner(tmp_path, namespaces=False, require_confinement=True)
    reply = await open_to_the_network.run(make_request(tmp_path / "state", HELLO, "main"), ignore)
    assert (reply.facts, reply.exit.kind) == (None, "not_started")
    assert "full confinement is required" in reply.fault
    assert "network" in reply.fault
    await open_to_the_network.close()


async def test_two_first_uses_start_one_supervisor(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    pids: list[int] = []

    async def greet() -> None:
        pids.append((await runner.hello()).pid)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(greet)
        tasks.start_soon(greet)
    await runner.close()
    assert pids[0] == pids[1]


async def test_an_idle_supervisor_leaves_and_the_next_request_starts_another(tmp_path: Path) -> None:
    runner = make_runner(tmp_path, idle_limit_s=0.05)
    first = (await runner.hello()).pid
    await ended(first)
    with anyio.fail_after(5):
        while runner.supervisor_pid is not None:
            await anyio.lowlevel.checkpoint()
    assert (await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)).facts == [42]
    await runner.close()


async def test_a_dead_supervisor_is_a_fault_of_every_open_request_and_is_replaced(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    replies: list[WorkerReply] = []
    begun = [anyio.Event(), anyio.Event()]

    async def run(index: int) -> None:
        request = make_request(tmp_path / "state", HANG, "main")
        replies.append(await runner.run(request, lambda _: begun[index].set()))

    async with anyio.create_task_group() as tasks:
        for index, event in enumerate(begun):
            tasks.start_soon(run, index)
            await event.wait()
        assert runner.supervisor_pid is not None
        os.kill(runner.supervisor_pid, signal.SIGKILL)
    assert ["ended unexpectedly" in reply.fault for reply in replies] == [True, True]
    assert (await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)).facts == [42]
    await runner.close()


async def test_a_silent_supervisor_is_killed_and_its_request_answered(tmp_path: Path) -> None:
    runner = make_runner(tmp_path, silence_margin_s=0.3)
    pid = (await runner.hello()).pid
    os.kill(pid, signal.SIGSTOP)
    reply = await runner.run(make_request(tmp_path / "state", HELLO, "main", cap_s=0.2), ignore)
    assert "silent" in reply.fault
    await runner.close()
    await ended(pid)


async def test_closing_answers_what_is_open_and_takes_nothing_new(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    replies: list[WorkerReply] = []
    begun = anyio.Event()

    async def run() -> None:
        request = make_request(tmp_path / "state", HANG, "main")
        replies.append(await runner.run(request, lambda _: begun.set()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await begun.wait()
        await runner.close()
    assert "shutting down" in replies[0].fault
    with pytest.raises(RunnerClosed):
        await runner.hello()


async def test_who_stops_waiting_cancels_the_work(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    begun = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run, make_request(tmp_path / "state", HANG, "main"), lambda _: begun.set())
        await begun.wait()
        tasks.cancel_scope.cancel()
    started_s = time.monotonic()
    assert (await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)).facts == [42]
    assert time.monotonic() - started_s < 10
    await runner.close()


async def test_a_supervisor_that_cannot_start_says_so(tmp_path: Path) -> None:
    runner = SupervisorRunner(CPU, tmp_path, SupervisorOptions(parts="no_such_module"))
    with pytest.raises(SupervisorUnavailable, match="ended"):
        await runner.hello()
    reply = await runner.run(make_request(tmp_path, HELLO, "main"), ignore)
    assert reply.exit.kind == "not_started"
    assert reply.fault
    await runner.close()


async def test_the_loop_turns_while_a_supervisor_starts_and_works(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    turns = 0
    done = anyio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)
        done.set()
    await runner.close()
    assert turns > 100


async def test_a_listener_that_raises_ends_only_its_own_wait(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)

    def stumble(progress: Progress) -> None:
        raise LookupError(progress.stage)

    with pytest.raises(LookupError, match="begun"):
        await runner.run(make_request(tmp_path / "state", HELLO, "main"), stumble)
    assert (await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)).facts == [42]
    await runner.close()


async def test_an_unknown_id_is_cancelled_without_complaint(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    await runner.cancel(7)
    assert runner.supervisor_pid is None
    await runner.hello()
    await runner.cancel(7)
    assert (await runner.run(make_request(tmp_path / "state", HELLO, "main"), ignore)).facts == [42]
    await runner.close()


@pytest.mark.parametrize("kind", ["fake", "real"])
async def test_fake_and_real_runner_keep_the_same_contract(tmp_path: Path, kind: str) -> None:
    request = make_request(tmp_path / "state", HANG, "main", cap_s=30.0)
    runner: Runner = make_runner(tmp_path) if kind == "real" else FakeRunner()
    begun = anyio.Event()
    replies: list[WorkerReply] = []

    async def run() -> None:
        replies.append(await runner.run(request, lambda _: begun.set()))

    assert (await runner.hello()).confinement
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await begun.wait()
        with pytest.raises(ValueError, match="already running"):
            await runner.run(request, ignore)
        await runner.cancel(request.request_id)
    assert (replies[0].request_id, replies[0].exit) == (request.request_id, ChildExit(kind="cancelled"))
    await runner.close()
    with pytest.raises(RunnerClosed):
        await runner.run(request, ignore)

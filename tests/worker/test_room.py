"""A server that lacks memory of the device gets what others keep there, at once."""

import os
import select
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from supervised import gone, ignore, make_request, make_runner

from kernelgate.tools.kit.runner import SupervisorRunner
from kernelgate.tools.kit.wire import WorkerReply
from kernelgate.tools.worker import memory, processes
from kernelgate.tools.worker.lease import Lease, this_process
from kernelgate.tools.worker.referee import Referee
from kernelgate.tools.worker.reference import HeldWorkload

LIMIT_S = 20.0


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[SupervisorRunner, SupervisorRunner]]:
    leases = tmp_path / "leases"
    made = make_runner(tmp_path / "one", lease_dir=leases), make_runner(tmp_path / "two", lease_dir=leases)
    yield made
    for runner in made:
        await runner.close()


async def call(runner: SupervisorRunner, folder: Path, **plan: object) -> WorkerReply:
    return await runner.run(make_request(folder, None, **plan), ignore)  # type: ignore[arg-type]  # keywords of any kind


def kept_by(runner: SupervisorRunner) -> list[int]:
    """Process descriptors of all that a server keeps between calls."""
    assert runner.supervisor_pid is not None
    return [os.pidfd_open(pid) for pid in processes.descendants(runner.supervisor_pid)]


@pytest.mark.anyio
async def test_what_another_server_keeps_is_gone_before_the_call_that_needs_it_begins(
    servers: tuple[SupervisorRunner, SupervisorRunner], tmp_path: Path
) -> None:
    one, two = servers
    await call(one, tmp_path)
    kept = kept_by(one)
    assert kept
    needed = await call(two, tmp_path, lacks_room=True)
    assert needed.fault == ""
    assert select.select(kept, [], [], 0)[0] == kept, "they had ended when it began"
    again = await call(one, tmp_path)
    assert (again.fault, again.observation["calls"]) == ("", 1)
    assert (await call(one, tmp_path)).observation["calls"] == 2, "it was asked once"
    for descriptor in kept:
        os.close(descriptor)


@pytest.mark.anyio
async def test_one_whose_call_waits_for_the_lease_gives_its_memory_back_meanwhile(
    servers: tuple[SupervisorRunner, SupervisorRunner], tmp_path: Path
) -> None:
    one, _ = servers
    await call(one, tmp_path)
    kept = kept_by(one)
    replies: list[WorkerReply] = []

    async def waiting() -> None:
        replies.append(await call(one, tmp_path))

    lease = Lease("cpu", tmp_path / "leases")
    assert lease.try_take()
    async with anyio.create_task_group() as group:
        group.start_soon(waiting)
        lease.ask_for_room()
        assert await gone(kept, LIMIT_S)
        assert replies == []
        lease.release()
    assert (replies[0].fault, replies[0].observation["calls"]) == ("", 1)
    for descriptor in kept:
        os.close(descriptor)


@pytest.mark.anyio
async def test_a_call_that_lacks_memory_which_nobody_else_keeps_is_not_held_up(
    servers: tuple[SupervisorRunner, SupervisorRunner], tmp_path: Path
) -> None:
    one, _ = servers
    await call(one, tmp_path, lacks_room=True)
    second = await call(one, tmp_path, lacks_room=True)
    assert second.observation["calls"] == 2, "its own referee is not asked to go"
    assert Lease("cpu", tmp_path / "leases").read().room_asked == 0


def test_who_asks_is_noted_beside_who_is_there(tmp_path: Path) -> None:
    mine, theirs = Lease("gpu", tmp_path), Lease("gpu", tmp_path)
    assert theirs.try_take()
    theirs.list_resident(os.getppid())
    theirs.release()
    assert mine.try_take()
    mine.list_resident(os.getpid())
    assert mine.others() == (this_process(os.getppid()),)
    assert (mine.ask_for_room(), mine.ask_for_room()) == (1, 2)
    mine.release()
    note = theirs.read()
    assert (note.holder, note.room_asked, len(note.residents)) == (None, 2, 2)


@pytest.mark.parametrize(
    ("free", "whole", "crowded"), [(10**12, 10**12, False), (10**6, 10**12, True), (10**6, 10**6, False)]
)
def test_only_a_task_that_others_keep_from_the_device_asks_for_room(
    monkeypatch: pytest.MonkeyPatch, free: int, whole: int, *, crowded: bool
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: free)
    monkeypatch.setattr(memory, "whole_bytes", lambda device: whole)
    held: Any = HeldWorkload.__new__(HeldWorkload)
    held.device, held.sizes = "cuda:0", SimpleNamespace(inputs_bytes=10**9, outputs_bytes=10**9, weights_bytes=0)
    referee: Any = Referee.__new__(Referee)
    referee._gpu, referee._house = object(), SimpleNamespace(held={"w": held})
    assert referee._crowded() is crowded
    referee._gpu = None
    assert not referee._crowded(), "the CPU's memory is not shared out by leases"

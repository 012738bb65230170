"""A candidate's process that was started ahead is used once, for its own source, and never stays."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from supervised import CPU, gone, ignore, make_request, make_runner

from kernelgate.tools.kit.runner import SupervisorRunner
from kernelgate.tools.kit.wire import WorkerReply
from kernelgate.tools.worker import processes
from kernelgate.tools.worker.lease import Lease

pytestmark = pytest.mark.anyio

WHO = """
import os
LOADED_BY = os.getpid()
def main():
    return {"pid": os.getpid(), "warm": os.path.exists("warmed"), "left": sorted(os.listdir("."))}
def mark():
    open("mark", "w").close()
    return "marked"
"""
OTHER = WHO + "# another source\n"
COLD = {"candidate.py": WHO, "cold.py": ""}


@pytest.fixture(params=[True, False], ids=["namespaces", "landlock only"])
async def runner(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SupervisorRunner]:
    monkeypatch.setenv("PATH", os.environ["PATH"] + ":/warms-up")
    made = make_runner(tmp_path, namespaces=request.param, grace_s=2.0, queue_limit_s=5.0)
    yield made
    await made.close()


async def call(
    runner: SupervisorRunner, folder: Path, source: str, *ask: str, procedure: str = "quick_time", **plan: object
) -> WorkerReply:
    request = make_request(folder / "state", source, *ask, procedure=procedure, **plan)  # type: ignore[arg-type]  # keywords of any kind
    return await runner.run(request, ignore)


def children(runner: SupervisorRunner) -> int:
    """Keepers that hang below the supervisor: the referee's, a spare's."""
    assert runner.supervisor_pid is not None
    return len(processes.children(runner.supervisor_pid))


async def test_a_check_starts_the_process_of_the_next_rung_and_that_rung_takes_it(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    checked = await call(runner, tmp_path, WHO, "mark", "main", procedure="check_correctness")
    assert checked.facts == ["marked", {"pid": checked.facts[1]["pid"], "warm": False, "left": ["candidate", "mark"]}]  # type: ignore[index, call-overload]  # as the candidate answers
    assert children(runner) == 2
    timed = await call(runner, tmp_path, WHO, "main")
    assert timed.facts is not None
    assert timed.facts[0]["warm"], "it was started ahead"  # type: ignore[index, call-overload]  # as above
    assert timed.facts[0]["left"] == ["candidate", "warmed"], "in a scratch of its own"  # type: ignore[index, call-overload]  # as above
    assert timed.exit.kind == "finished"
    assert children(runner) == 1
    again = await call(runner, tmp_path, WHO, "main")
    assert again.facts is not None
    assert not again.facts[0]["warm"], "a spare is used once"  # type: ignore[index, call-overload]  # as above


async def test_another_source_never_gets_it(runner: SupervisorRunner, tmp_path: Path) -> None:
    await call(runner, tmp_path, WHO, procedure="check_correctness")
    other = await call(runner, tmp_path, OTHER, "main")
    assert other.facts is not None
    assert not other.facts[0]["warm"]  # type: ignore[index, call-overload]  # as the candidate answers
    assert children(runner) == 2, "it still waits for its own"
    await call(runner, tmp_path, OTHER, procedure="check_correctness")
    assert children(runner) == 2, "the newer one took its place"


async def test_a_compile_starts_the_processes_of_the_next_two_rungs_where_the_device_is_free(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    built = await call(runner, tmp_path, WHO, "main", procedure="compile")
    assert built.fault == ""
    assert built.lease_s == 0, "the house pays"
    assert children(runner) == 2
    for procedure in ("check_correctness", "quick_time"):
        reply = await call(runner, tmp_path, WHO, "main", procedure=procedure)
        assert reply.facts is not None
        assert reply.facts[0]["warm"]  # type: ignore[index, call-overload]  # as the candidate answers
    assert children(runner) == 1, "the check found the next one started and made no further"


async def test_a_compile_starts_nothing_where_others_hold_the_device(runner: SupervisorRunner, tmp_path: Path) -> None:
    lease = Lease(CPU.uid, tmp_path / "leases")
    assert lease.try_take()
    built = await call(runner, tmp_path, WHO, "main", procedure="compile")
    assert built.fault == ""
    assert children(runner) == 0
    lease.release()


async def test_what_fails_ahead_is_left_to_the_call(runner: SupervisorRunner, tmp_path: Path) -> None:
    request = make_request(tmp_path / "state", WHO, "main", procedure="check_correctness")
    request = request.model_copy(update={"files": COLD})
    assert (await runner.run(request, ignore)).fault == ""
    timed = await runner.run(request.model_copy(update={"request_id": 10_000, "procedure": "quick_time"}), ignore)
    assert timed.facts is not None
    assert not timed.facts[0]["warm"]  # type: ignore[index, call-overload]  # as the candidate answers
    assert (timed.fault, timed.exit.kind) == ("", "finished")


async def test_a_spare_dies_with_its_supervisor(runner: SupervisorRunner, tmp_path: Path) -> None:
    await call(runner, tmp_path, WHO, procedure="check_correctness")
    assert runner.supervisor_pid is not None
    descriptors = [os.pidfd_open(pid) for pid in processes.descendants(runner.supervisor_pid)]
    assert len(descriptors) >= 4
    await runner.close()
    assert await gone(descriptors, 10.0)
    for descriptor in descriptors:
        os.close(descriptor)

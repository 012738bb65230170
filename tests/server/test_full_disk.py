"""A book that cannot grow for a while: what ended meanwhile is written later, and nobody joins what has ended."""

from pathlib import Path
from typing import Any

import pytest
from going_well import correct
from live_server import forward
from mcp import Client
from test_gate import scripted

from kernelgate.budget.audit import audit
from kernelgate.budget.errors import BookDiskFull
from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings

pytestmark = pytest.mark.anyio
ARGUMENTS = {"run_id": "r1", "source": forward("return x"), "up_to": "check_correctness"}


def fill(disk: pytest.MonkeyPatch, *writes: str) -> None:
    """From now on these writes of the ledger find no space."""

    def full(*_: Any, **__: Any) -> None:
        raise BookDiskFull("The book cannot grow: the disk is full; free space, nothing was charged.")

    for write in writes:
        disk.setattr(Ledger, write, full)


@pytest.mark.parametrize(
    "full",
    [("settle", "cancel_job"), ("admit", "cancel_job"), ("start_job", "cancel_job"), ("cancel_job", "release")],
    ids=lambda names: names[0],
)
async def test_after_space_was_freed_the_same_call_is_answered_and_no_hold_is_left(
    tmp_path: Path, full: tuple[str, ...]
) -> None:
    runner, _ = scripted(correct)
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        compiled = await client.call_tool("compile", {**ARGUMENTS, "up_to": "compile"})
        assert compiled.structured_content["verdict"] == "built"
        with pytest.MonkeyPatch.context() as disk:
            fill(disk, *full)
            if "release" in full:
                disk.setattr("kernelgate.server.tries.measure", failing)
            refused = await client.call_tool("compile", ARGUMENTS)
            assert refused.is_error
            assert "the disk is full" in refused.content[0].text
            still = await client.call_tool("compile", ARGUMENTS)
            assert "the disk is full" in still.content[0].text
        answered = await client.call_tool("compile", ARGUMENTS)
        assert answered.structured_content["verdict"] == "correct"
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            assert ledger.open_holds("r1") == ()
            assert ledger.jobs("r1", active_only=True) == ()
            assert ledger.purse("r1").settled.check_calls == 1
    assert audit(tmp_path / "ledger.db").ok


async def failing(*_: Any) -> None:
    raise OSError("nothing works today")


async def test_a_finished_call_is_answered_although_the_end_of_its_job_is_written_later(tmp_path: Path) -> None:
    runner, _ = scripted(correct)
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        with pytest.MonkeyPatch.context() as disk:
            fill(disk, "finish_job")
            answered = await client.call_tool("compile", ARGUMENTS)
            assert answered.structured_content["verdict"] == "correct"
        again = await client.call_tool("check_correctness", {"candidate_id": "c1", "fresh": True})
        assert again.structured_content["verdict"] == "correct"
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            assert {job.state for job in ledger.jobs("r1")} == {"done"}

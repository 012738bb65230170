"""What `best` writes above the winner, and where."""

from pathlib import Path

import pytest
from mcp import Client
from pydantic import JsonValue
from test_own_kernel import precise_summary, runner, settings_with_own_kernel

from kernelgate.server.app import build
from kernelgate.server.run_commands import worst_workload, write_best
from kernelgate.server.services import open_services

ROWS: JsonValue = [{"workload": "64x256", "ratio": 1.5}, {"workload": "held_out_1", "ratio": 0.98765}]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"worst_workload": "held_out_1", "workloads": ROWS}, "held_out_1 at 0.9877x"),
        ({"worst_workload": "64x256", "workloads": ROWS}, "64x256 at 1.5000x"),
        ({"worst_workload": "gone", "workloads": ROWS}, "gone"),
        ({"worst_workload": "64x256"}, "64x256"),
        ({}, ""),
    ],
)
def test_the_worst_workload_is_named_with_its_ratio(report: dict[str, JsonValue], words: str) -> None:
    assert worst_workload(report) == words


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["missing/best.py", "."])
async def test_a_best_candidate_that_cannot_be_written_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    settings = settings_with_own_kernel(tmp_path)
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner()}))) as client:
        await client.call_tool("start_run", {"task": "op", "rule": "flat"})
        await precise_summary(client, "better")
    assert write_best(settings, "r1", tmp_path / place) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said
    assert said.count("\n") == 1

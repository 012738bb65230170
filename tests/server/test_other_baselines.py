"""torch.compile and CUDA graphs as baselines, where a task asks for them: timed once, on the house, and told."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from going_well import Answer, as_fast, steady, timed, worker
from live_server import forward
from mcp import Client

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.other_baselines import DRESSES
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest

TASK = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(8))
    def forward(self, x):
        return torch.softmax(x * self.scale, dim=-1)
def get_inputs():
    return [torch.rand(16, 8)]
def get_init_inputs():
    return []
"""


def asking(folder: Path, *baselines: str) -> Path:
    """A folder of tasks with one that asks for these baselines."""
    (folder / "tasks/mine").mkdir(parents=True)
    (folder / "tasks/mine/reference.py").write_text(TASK, encoding="utf-8")
    told = f"baselines = {json.dumps(baselines)}\n[[workload]]\nname = 'only'\n"
    (folder / "tasks/mine/task.toml").write_text(told, encoding="utf-8")
    return folder / "tasks"


class Timings:
    """Precise timings: of the dressed reference as told, of every other candidate three times as fast."""

    def __init__(self, dressed: Answer) -> None:
        self.dressed = 0
        self._dressed = dressed

    def __call__(self, request: WorkerRequest) -> WorkerReply:
        if any(text.endswith(dress) for text in request.files.values() for dress in DRESSES.values()):
            self.dressed += 1
            return self._dressed(request)
        return timed(request, steady("only", gain=3.0))


def crashed(request: WorkerRequest) -> WorkerReply:
    return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="signalled", status=11), lease_s=0.5)


def faulted(request: WorkerRequest) -> WorkerReply:
    return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="exited"), fault="It fell over.")


async def summaries(folder: Path, timings: Timings, *baselines: str, candidates: int = 1) -> list[str]:
    settings = Settings(data_dir=folder / "data", device="cpu", task_dirs=(asking(folder, *baselines),))
    runner = worker(timings, known_good=as_fast)
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        started = await client.call_tool("start_run", {"task": "mine", "rule": "flat"})
        assert not started.is_error, started
        said: list[str] = []
        for number in range(candidates):
            source = forward(f"return x + {number}")
            arguments = {"run_id": "r1", "source": source, "up_to": "precise_time"}
            reply: dict[str, Any] = (await client.call_tool("compile", arguments)).structured_content
            said.append(reply["summary"])
        return said


@pytest.mark.anyio
async def test_a_candidate_is_told_against_each_baseline_that_the_task_asks_for(tmp_path: Path) -> None:
    timings = Timings(lambda request: timed(request, steady("only", gain=1.5)))
    said = await summaries(tmp_path, timings, "eager", "compile", "cuda_graph", candidates=2)
    for summary in said:
        assert "it is 2.0" in summary.replace("1.99", "2.0")
        assert "x as fast as torch.compile, between " in summary
        assert "it is not compared with a CUDA graph of the reference (there are none without a GPU)" in summary
    assert timings.dressed == 1, "once for the task in this environment"
    with Ledger.open(tmp_path / "data/ledger.db") as ledger:
        (row,) = ledger.query("SELECT * FROM calibrations WHERE kind = 'baseline_compile'")
        assert row["cpu_s"] == pytest.approx(0.5), "on the house"
    assert audit(tmp_path / "data/ledger.db").ok


@pytest.mark.anyio
async def test_a_task_that_asks_for_none_is_compared_with_none(tmp_path: Path) -> None:
    timings = Timings(crashed)
    (said,) = await summaries(tmp_path, timings, "eager")
    assert timings.dressed == 0
    assert "compile" not in said


@pytest.mark.anyio
async def test_a_baseline_that_does_not_work_is_told_as_that_and_not_tried_for_each_candidate(tmp_path: Path) -> None:
    timings = Timings(crashed)
    said = await summaries(tmp_path, timings, "compile", candidates=2)
    assert all("it is not compared with torch.compile (crashed: " in summary for summary in said)
    assert timings.dressed == 1


@pytest.mark.anyio
async def test_a_fault_of_ours_is_no_finding_and_the_next_candidate_tries_again(tmp_path: Path) -> None:
    timings = Timings(faulted)
    said = await summaries(tmp_path, timings, "compile", candidates=2)
    assert all("it is not compared with torch.compile (it was not timed)" in summary for summary in said)
    assert timings.dressed == 2


@pytest.mark.anyio
async def test_a_device_that_was_held_back_meanwhile_is_no_finding_either(tmp_path: Path) -> None:
    def held_back(request: WorkerRequest) -> WorkerReply:
        only = steady("only")
        hot = tuple(pair.model_copy(update={"void": "the device was too hot"}) for pair in only.pairs)
        return timed(request, only.model_copy(update={"pairs": (), "voided": hot}))

    timings = Timings(held_back)
    said = await summaries(tmp_path, timings, "compile", candidates=2)
    assert all("it is not compared with torch.compile (it was not timed)" in summary for summary in said)
    assert timings.dressed == 2


def test_a_dress_works_whatever_a_reference_calls_its_own_and_compiles_each_workload_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reference = TASK.replace("import torch\n", "import torch\nimport math as _torch\n_pytree = 2.0\n").replace(
        "x * self.scale", "x * _torch.sqrt(_pytree)"
    )
    made: dict[str, Any] = {}
    exec(reference + DRESSES["compile"], made)
    asked: list[str] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: asked.append("reset"))
    monkeypatch.setattr(torch, "compile", lambda forward: asked.append("compile") or forward)
    for rows in (2, 3):
        x = torch.rand(rows, 8)
        assert torch.equal(made["ModelNew"]()(x), torch.softmax(x * 2**0.5, dim=-1))
    assert asked == ["reset", "compile"] * 2


@pytest.mark.long
@pytest.mark.anyio
async def test_torch_compile_is_really_timed(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", device="cpu", task_dirs=(asking(tmp_path, "eager", "compile"),))
    async with Client(build(lambda: open_services(settings))) as client:
        assert not (await client.call_tool("start_run", {"task": "mine", "rule": "flat"})).is_error
        source = TASK.replace("class Model(", "class ModelNew(")
        arguments = {"run_id": "r1", "source": source, "up_to": "precise_time", "wait_s": 200}
        reply: dict[str, Any] = (await client.call_tool("compile", arguments)).structured_content
    assert "x as fast as torch.compile, between " in reply["summary"], reply["summary"]

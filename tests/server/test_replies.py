"""What replies say of running work, of numbers and of rungs: nothing that a reader would take for something else."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import PUBLIC, correct, steady, timed, worker
from live_server import forward
from mcp import Client
from synthetic import workload
from test_gate import scripted

from kernelgate.budget.model import Rung
from kernelgate.budget.records import JobRecord
from kernelgate.server.advice import in_tools
from kernelgate.server.app import build, face
from kernelgate.server.book import elapsed_s
from kernelgate.server.run_commands import show_runs
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.wire import WorkerReply, WorkerRequest

pytestmark = pytest.mark.anyio
CRASH = WorkloadTiming(
    workload=workload("64x256"), fault=Fault(kind="raised", stage="block", error="ValueError: not twice")
)
BARE_RUNG = re.compile(r"\b(check|quick|precise)\b")


@asynccontextmanager
async def connected(folder: Path, runner: FakeRunner) -> AsyncIterator[Client]:
    settings = Settings(data_dir=folder, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        yield client


async def ask(client: Client, tool: str, **arguments: Any) -> Mapping[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content or {}


async def climb(client: Client, up_to: str, word: str = "x", **more: Any) -> Mapping[str, Any]:
    return await ask(client, "compile", run_id="r1", source=forward(f"return {word}"), up_to=up_to, **more)


async def test_while_a_call_runs_it_is_said_what_is_held_for_it(tmp_path: Path) -> None:
    runner, _ = scripted(correct)
    async with connected(tmp_path, runner) as client:
        # A first hold of the check takes all of it: nothing is left, and nothing is spent.
        await ask(client, "start_run", task="softmax", device_s=4.0)
        runner.hang_at("check_correctness")
        running = await climb(client, "check_correctness", wait_s=0.2)
        budget = await ask(client, "get_budget", run_id="r1")
        assert running["status"] == "running"
        for remaining in (running["remaining"], budget["run"]["remaining"]):
            assert remaining["held_device_s"] == pytest.approx(4.0)
            assert remaining["device_s"] == 0
        for reply in (running, budget):
            assert (
                "4.00 device seconds are held for work that runs: what it does not use comes back" in reply["summary"]
            )
        other = await climb(client, "compile", "x + 0")
        assert "stop_advice" not in other


async def test_an_ended_job_has_no_stage_left_and_says_how_long_it_took_also_to_the_next_server(tmp_path: Path) -> None:
    async with connected(tmp_path, worker(lambda request: timed(request, *PUBLIC))) as client:
        await ask(client, "start_run", task="softmax")
        await climb(client, "quick_time")
        first, later = [(await ask(client, "job", job_id="j1"))["job"] for _ in range(2)]
    async with connected(tmp_path, FakeRunner()) as client:
        restarted = (await ask(client, "job", job_id="j1"))["job"]
    for job in (first, later, restarted):
        assert job["state"] == "done"
        assert job.keys() & {"stage", "done", "total"} == set()
        assert 0 < job["elapsed_s"] < 60
    assert first["elapsed_s"] == later["elapsed_s"]


@pytest.mark.parametrize(("state", "seconds"), [("done", 7.5), ("cancelled", 7.5), ("lost", 3.0)])
def test_a_job_of_another_server_took_as_long_as_the_book_says(state: str, seconds: float) -> None:
    record = JobRecord.model_validate(
        {
            "job_id": "j1", "run_id": "r1", "candidate_id": None, "account_id": "local", "tool": "compile",
            "arguments_sha256": "0" * 64, "arguments": {}, "state": state, "result": None,
            "owner": {"pid": 1, "start_s": 0.0}, "created_utc": "2026-05-09T07:35:20.000000Z",
            "heartbeat_utc": "2026-05-09T07:35:23.000000Z", "finished_utc": "2026-05-09T07:35:27.500000Z",
        }
    )  # fmt: skip
    assert elapsed_s(record) == seconds


async def test_with_up_to_the_verdict_is_that_of_the_last_report_and_report_stays_compiles(tmp_path: Path) -> None:
    async with connected(tmp_path, worker(lambda request: timed(request, *PUBLIC))) as client:
        await ask(client, "start_run", task="softmax")
        reply = await climb(client, "quick_time")
        assert (reply["rung"], reply["verdict"]) == ("quick", "maybe_faster")
        assert reply["last_report"]["verdict"] == reply["verdict"]
        assert reply["report"]["verdict"] == "built"
    described = next(tool for tool in face().listing if tool.name == "compile").input_schema["properties"]["up_to"]
    assert "`last_report` is its report, `report` is compile's" in described["description"]


async def test_a_ratio_from_below_the_rung_that_failed_says_where_it_is_from_and_is_not_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def precise(request: WorkerRequest) -> WorkerReply:
        return timed(request, *([CRASH] if "twice" in request.files["candidate.py"] else PUBLIC))

    def quick(request: WorkerRequest) -> WorkerReply:
        return timed(request, steady("64x256", gain=9.0 if "twice" in request.files["candidate.py"] else 2.0))

    async with connected(tmp_path, worker(precise, quick=quick)) as client:
        await ask(client, "start_run", task="softmax", rule="flat")
        assert (await climb(client, "precise_time", "x  # twice"))["verdict"] == "crashed"
        await climb(client, "precise_time", "x  # well")
        details = await ask(client, "get_candidate", candidate_id="c1")
        listed = (await ask(client, "list_candidates", run_id="r1"))["candidates"]
    assert re.search(r"precise crashed, (8|9)\.\d+x by quick_time before", details["summary"])
    assert [(row["candidate_id"], row["ratio_rung"]) for row in listed] == [("c2", "precise"), ("c1", "quick")]
    assert show_runs(Settings(data_dir=tmp_path), "r1", close=False) == 0
    shown = capsys.readouterr().out
    assert "crashed at" in shown
    assert "x (quick)" in shown


async def test_every_refusal_names_tools_where_the_book_speaks_of_rungs(tmp_path: Path) -> None:
    slow = worker(lambda request: timed(request, *PUBLIC), quick=lambda r: timed(r, steady("64x256", gain=0.5)))
    async with connected(tmp_path, slow) as client:
        await ask(client, "start_run", task="softmax", precise_calls=1)
        await climb(client, "compile")
        said = [await ask(client, tool, candidate_id="c1") for tool in ("quick_time", "precise_time", "profile")]
        said.append(await climb(client, "precise_time"))
        reason = "to see how slow it is"
        await ask(client, "precise_time", candidate_id="c1", override_reason=reason)
        said.append(await ask(client, "precise_time", candidate_id="c1", fresh=True, override_reason=reason))
    assert {reply["refusal"]["kind"] for reply in said} == {"rung_missing", "rule", "purse"}
    for reply in said:
        refusal = json.dumps(
            [reply["summary"], reply["refusal"], [step.get("missing") for step in reply["next_steps"]]]
        )
        assert BARE_RUNG.search(refusal) is None, refusal
    assert said[0]["refusal"]["missing"] == "check_correctness: a passing result."
    blocked = [step for step in said[3]["next_steps"] if step["tool"] == "precise_time"]
    assert [step["missing"] for step in blocked] == [
        "it needs a quick_time interval that reaches 1.0: make the candidate faster first."
    ]


@pytest.mark.parametrize("rung", Rung)
def test_a_rung_in_a_sentence_becomes_its_tool_once_and_other_words_stay(rung: Rung) -> None:
    told = in_tools(f"c1 did not pass {rung}: measured precisely, it was quickly checked.")
    assert in_tools(told) == told
    assert told.endswith("measured precisely, it was quickly checked.")


async def test_a_task_counts_its_workloads_by_device_and_speaks_of_hidden_shapes_only_where_there_are_some(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "mine" / "plain"
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text(
        "SIZE = 4\nclass Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    )
    (folder / "task.toml").write_text('[[workload]]\nname = "one"\ndevices = ["cpu"]\n[workload.set]\nSIZE = 8\n')
    settings = Settings(data_dir=tmp_path / "data", task_dirs=(tmp_path / "mine",), device="cpu")
    well = worker(lambda request: timed(request, *PUBLIC))
    async with Client(build(lambda: open_services(settings, runners={"cpu": well}))) as client:
        softmax = await ask(client, "get_task", task="softmax")
        plain = await ask(client, "get_task", task="plain")
        started = await ask(client, "start_run", task="softmax")
    both = "2 public workloads and 1 hidden one"
    assert softmax["summary"] == f"Row softmax: on cpu {both}; on cuda {both}."
    assert softmax["candidate_form"].endswith("and on hidden shapes.")
    assert plain["summary"].endswith("on cpu 1 public workload; on cuda no public workloads.")
    assert "hidden" not in plain["candidate_form"]
    assert f"device cpu with {both}, rule" in started["summary"]


def test_the_one_tool_that_blocks_for_long_without_a_job_says_so() -> None:
    described = next(tool for tool in face().listing if tool.name == "start_run").description or ""
    assert "May take long, and has no job_id" in described
    assert "own kernel" in described

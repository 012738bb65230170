"""Other people's processes on the GPU: said at the end of what was measured beside them, and kept with it."""

import random
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import PUBLIC, built, correct, qualified, steady, timed
from live_server import forward
from mcp import Client
from synthetic import noisy, timing
from test_own_kernel import precise_summary, settings_with_own_kernel

from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.passages import company_of
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest

ONE = [{"pid": 123, "memory_mib": 512}]
SAID = "another process used this GPU meanwhile: pid 123, 512 MiB"


def seen(processes: Any) -> WorkerReply:
    return WorkerReply(
        request_id=1, exit=ChildExit(kind="finished"), observation={"foreign_processes": processes, "load_1m": 0.5}
    )


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        (ONE, SAID),
        ([*ONE, {"pid": 7, "memory_mib": 0}], "2 other processes used this GPU meanwhile: pid 123, 512 MiB; pid 7"),
        ([], ""),
        ("nonsense", ""),
        ([{"pid": "many"}], ""),
    ],
)
def test_processes_are_told_in_one_sentence(processes: Any, said: str) -> None:
    assert company_of(seen(processes)) == said


def test_without_an_observation_nobody_is_told_of() -> None:
    assert company_of(WorkerReply(request_id=1, exit=ChildExit(kind="finished"))) == ""


def beside_another(request: WorkerRequest) -> WorkerReply:
    """All goes well; only the quick timing has company."""
    answers = {"qualify": qualified, "compile": built, "check_correctness": correct}
    if request.procedure in answers:
        return answers[request.procedure](request)
    observation = {"foreign_processes": ONE} if request.procedure == "quick_time" else {}
    return timed(request, *PUBLIC, observation=observation)


@pytest.mark.anyio
async def test_the_summary_of_the_rung_that_had_company_ends_with_it_and_the_book_keeps_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": FakeRunner(beside_another)}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "quick_time"}
        measured = (await client.call_tool("compile", arguments)).structured_content
        replayed = (await client.call_tool("compile", arguments)).structured_content
    assert measured["summary"].endswith(f"; {SAID}")
    assert [step["summary"].endswith(SAID) for step in measured["climbed"]] == [False, False, True]
    assert SAID not in measured["last_report"]["summary"], "a report is the judgement alone"
    assert SAID not in replayed["summary"], "it was then, not now"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        rows = ledger.query("SELECT facts_json FROM observations WHERE result_id IS NOT NULL")
    assert any('"foreign_processes":[{"memory_mib":512,"pid":123}]' in row["facts_json"] for row in rows)


RNG = random.Random(3)
CONTRADICTED = timing(noisy(RNG, 1000, 0.01), noisy(RNG, 200, 0.01), 24, true_candidate_us=noisy(RNG, 900, 0.01))
NEVER_QUIET = steady("one").model_copy(
    update={"fault": Fault(kind="busy_device", stage="block", error="the GPU was still busy"), "pairs": ()}
)


@pytest.mark.anyio
@pytest.mark.parametrize("company", [True, False])
@pytest.mark.parametrize("unhappy", [CONTRADICTED, NEVER_QUIET], ids=["clock", "busy"])
async def test_what_company_may_have_done_accuses_nobody(
    tmp_path: Path, unhappy: WorkloadTiming, *, company: bool
) -> None:
    def answer(request: WorkerRequest) -> WorkerReply:
        reply = beside_another(request)
        if request.procedure != "quick_time":
            return reply
        return timed(request, unhappy, observation=reply.observation if company else {})

    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": FakeRunner(answer)}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "quick_time"}
        reply = await client.call_tool("compile", arguments)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        purse, verdicts = ledger.purse("r1"), [result.verdict.value for result in ledger.results("c1")]
    assert purse.open.device_s == 0
    assert ("suspicious" in verdicts) != company
    assert reply.is_error == company
    assert (SAID in str(reply.content)) == company
    assert (purse.settled.quick_calls == 0) == company, "a fault of ours costs nothing"


@pytest.mark.anyio
async def test_company_stands_behind_the_gain_over_the_users_own_kernel(tmp_path: Path) -> None:
    def answer(request: WorkerRequest) -> WorkerReply:
        known = {"qualify": qualified, "compile": built, "check_correctness": correct}
        if request.procedure in known:
            return known[request.procedure](request)
        return timed(request, steady("one"), observation={"foreign_processes": ONE})

    settings = settings_with_own_kernel(tmp_path)
    async with Client(build(lambda: open_services(settings, runners={"cpu": FakeRunner(answer)}))) as client:
        await client.call_tool("start_run", {"task": "op", "rule": "flat"})
        summary = await precise_summary(client, "better")
    assert "your own kernel" in summary
    assert summary.endswith(f"; {SAID}")

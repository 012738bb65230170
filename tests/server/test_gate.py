"""The gate over a worker that does what the test says: faults, estimates that were too small, purses that end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import Answer, built, correct, qualified
from live_server import forward
from mcp import Client

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.report import spent_per_rung
from kernelgate.server.app import build
from kernelgate.server.measure import KNOWN_GOOD, WAITING
from kernelgate.server.run_commands import show_runs
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.runner import OnProgress
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest

pytestmark = pytest.mark.anyio


class HangingRunner(FakeRunner):
    """A fake that from some time on never answers one procedure."""

    def __init__(self, script: Answer) -> None:
        super().__init__(script)
        self._endless = FakeRunner()
        self._hanging, self._stage = "", ""

    def hang_at(self, procedure: str, stage: str = "begun") -> None:
        self._hanging, self._stage = procedure, stage

    async def run(self, request: WorkerRequest, on_progress: OnProgress) -> WorkerReply:
        if request.procedure != self._hanging:
            return await super().run(request, on_progress)
        return await self._endless.run(
            request, lambda progress: on_progress(progress.model_copy(update={"stage": self._stage}))
        )


def scripted(check: Answer, known_good: Answer = correct) -> tuple[HangingRunner, list[str]]:
    """A runner that qualifies and builds, and checks the client's candidate and a known good one as told.

    And what it was asked for: the names of procedures, with the known good candidate marked.
    """
    asked: list[str] = []

    def answer(request: WorkerRequest) -> WorkerReply:
        is_ours = any(KNOWN_GOOD in text for text in request.files.values())
        asked.append(request.procedure + (" of known good" if is_ours else ""))
        answers = {"qualify": qualified, "compile": built, "check_correctness": known_good if is_ours else check}
        return answers[request.procedure](request)

    return HangingRunner(answer), asked


def our_fault(request: WorkerRequest) -> WorkerReply:
    ended = ChildExit(kind="signalled", status=9)
    return WorkerReply(request_id=request.request_id, exit=ended, fault="The referee died.", lease_s=0.3, wall_s=0.3)


@asynccontextmanager
async def checked(folder: Path, runner: FakeRunner, **budget: Any) -> AsyncIterator[tuple[Any, Ledger]]:
    """The result of checking one candidate, and the book."""
    settings = Settings(data_dir=folder, device="cpu")
    server = build(lambda: open_services(settings, runners={"cpu": runner}))
    async with Client(server) as client:
        started = await client.call_tool("start_run", {"task": "softmax", **budget})
        run_id = started.structured_content["run"]["run_id"]
        arguments = {"run_id": run_id, "source": forward("return x"), "up_to": "check_correctness"}
        result = await client.call_tool("compile", arguments)
        with Ledger.open(folder / "ledger.db") as ledger:
            yield result, ledger
            assert ledger.open_holds(run_id) == ()
    report = audit(folder / "ledger.db")
    assert report.ok, report.findings


async def test_a_fault_of_ours_is_retried_once_and_the_second_try_counts(tmp_path: Path) -> None:
    tries: list[int] = []

    def flaky(request: WorkerRequest) -> WorkerReply:
        tries.append(1)
        return our_fault(request) if len(tries) == 1 else correct(request)

    runner, asked = scripted(flaky)
    async with checked(tmp_path, runner) as (result, ledger):
        assert result.structured_content["verdict"] == "correct"
        assert ledger.purse("r1").settled.device_s == pytest.approx(0.5)
    assert "check_correctness of known good" not in asked


async def test_faults_where_a_known_good_candidate_fails_too_are_ours_and_cost_nothing(tmp_path: Path) -> None:
    runner, asked = scripted(our_fault, our_fault)
    async with checked(tmp_path, runner) as (result, ledger):
        assert result.is_error
        assert "Nothing was charged" in result.content[0].text
        purse = ledger.purse("r1")
        assert purse.settled.device_s == purse.open.device_s == 0
        assert purse.settled.check_calls == 0
    assert asked.count("check_correctness") == 2
    # Asked the same work, not an easier one: a fault in what only this rung does must not fall on the candidate.
    assert asked[-1] == "check_correctness of known good"


async def test_faults_where_a_known_good_candidate_passes_are_the_candidates_and_charged(tmp_path: Path) -> None:
    runner, _ = scripted(our_fault)
    async with checked(tmp_path, runner) as (result, ledger):
        assert result.structured_content["verdict"] == "crashed"
        assert ledger.results("c1")[-1].code == "FAULT_FARMING"
        assert ledger.purse("r1").settled.device_s > 0


async def test_a_call_that_never_started_is_never_blamed_on_the_candidate(tmp_path: Path) -> None:
    def no_lease(request: WorkerRequest) -> WorkerReply:
        ended = ChildExit(kind="not_started")
        return WorkerReply(request_id=request.request_id, exit=ended, fault="No lease in 120 s.")

    runner, asked = scripted(no_lease)
    async with checked(tmp_path, runner) as (result, ledger):
        assert "No lease in 120 s" in result.content[0].text
        assert ledger.purse("r1").settled.check_calls == 0
    assert "check_correctness of known good" not in asked


async def test_an_estimate_that_was_too_small_is_extended_once_and_is_no_verdict(tmp_path: Path) -> None:
    caps: list[float] = []

    def slow(request: WorkerRequest) -> WorkerReply:
        caps.append(request.cap_s)
        if len(caps) == 1:
            ended = ChildExit(kind="cap_reached")
            return WorkerReply(request_id=request.request_id, exit=ended, lease_s=request.cap_s, wall_s=request.cap_s)
        return correct(request, lease_s=7.0, wall_s=30.0)

    runner, _ = scripted(slow)
    async with checked(tmp_path, runner) as (result, ledger):
        assert result.structured_content["verdict"] == "correct"
        assert ledger.purse("r1").settled.device_s == pytest.approx(caps[0] + 7.0)
        (charge,) = ledger.query("SELECT work_s, overrun_work_s FROM charges WHERE rung = 'check'")
        assert charge == {"work_s": pytest.approx(caps[0] + 30.0), "overrun_work_s": 0.0}
    assert len(caps) == 2
    assert caps[1] > caps[0]


async def test_only_the_rungs_own_limit_is_a_time_out(tmp_path: Path) -> None:
    def endless(request: WorkerRequest) -> WorkerReply:
        ended = ChildExit(kind="cap_reached")
        return WorkerReply(request_id=request.request_id, exit=ended, lease_s=request.cap_s, wall_s=request.cap_s)

    runner, _ = scripted(endless)
    async with checked(tmp_path, runner) as (result, ledger):
        assert result.structured_content["verdict"] == "timed_out"
        assert ledger.results("c1")[-1].code == "HANG"


async def test_a_purse_that_cannot_carry_the_work_to_the_limit_is_refused_after_what_was_used_is_charged(
    tmp_path: Path,
) -> None:
    def endless(request: WorkerRequest) -> WorkerReply:
        ended = ChildExit(kind="cap_reached")
        return WorkerReply(request_id=request.request_id, exit=ended, lease_s=request.cap_s, wall_s=request.cap_s)

    runner, _ = scripted(endless)
    async with checked(tmp_path, runner, device_s=2.0) as (result, ledger):
        assert result.structured_content["refusal"]["kind"] == "purse"
        assert ledger.purse("r1").settled.device_s == pytest.approx(2.0)
        assert [r.rung.value for r in ledger.results("c1")] == ["compile"]


async def test_a_call_that_would_be_cut_by_what_is_left_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    runner, asked = scripted(correct)
    server = build(lambda: open_services(Settings(data_dir=tmp_path, device="cpu"), runners={"cpu": runner}))
    async with Client(server) as client:
        started = await client.call_tool("start_run", {"task": "softmax", "device_s": 1.7})
        results: list[dict[str, Any]] = []
        for number in range(4):
            arguments = {
                "run_id": started.structured_content["run"]["run_id"], "up_to": "check_correctness",
                "source": forward(f"return x + {number}"),
            }  # fmt: skip
            results.append((await client.call_tool("compile", arguments)).structured_content)
    assert [result["status"] for result in results] == ["ok", "ok", "ok", "refused"]
    last = results[-1]
    assert last["refusal"]["kind"] == "purse"
    assert "0.200 device seconds are left, and check_correctness needs 0.250" in last["refusal"]["why"]
    assert last["remaining"]["device_s"] == pytest.approx(0.2)
    assert asked.count("check_correctness") == 3
    assert audit(tmp_path / "ledger.db").ok


async def test_a_deadline_that_cannot_carry_the_work_to_the_limit_is_what_the_refusal_names(tmp_path: Path) -> None:
    def endless(request: WorkerRequest) -> WorkerReply:
        ended = ChildExit(kind="cap_reached")
        return WorkerReply(request_id=request.request_id, exit=ended, lease_s=request.cap_s, wall_s=request.cap_s)

    runner, _ = scripted(endless)
    async with checked(tmp_path, runner, deadline_s=5.0) as (result, ledger):
        assert result.structured_content["refusal"]["kind"] == "deadline"
        assert "time before the deadline" in result.structured_content["summary"]
        (charge,) = ledger.query("SELECT outcome, cpu_s FROM charges WHERE rung = 'check'")
        assert charge["outcome"] == "purse_ended"
        assert charge["cpu_s"] > 0


async def test_a_task_that_lets_a_mutant_pass_cannot_be_run_on(tmp_path: Path) -> None:
    def useless(request: WorkerRequest) -> WorkerReply:
        reply = qualified(request)
        assert isinstance(reply.facts, dict)
        trials = [{**trial, "passes": True} for trial in reply.facts["trials"]]  # type: ignore[union-attr,dict-item]  # made above
        return reply.model_copy(update={"facts": {**reply.facts, "trials": trials}})

    runner = FakeRunner(useless)
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        result = await client.call_tool("start_run", {"task": "softmax"})
        assert result.is_error
        assert "zeros" in result.content[0].text
        again = await client.call_tool("start_run", {"task": "softmax"})
        assert "zeros" in again.content[0].text
    assert len(runner.requests) == 1, "what was found is kept in the book"


async def test_work_that_the_server_leaves_is_charged_as_cancelled_and_shows_in_what_was_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner, _ = scripted(correct)
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        runner.hang_at("check_correctness")
        arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "check_correctness", "wait_s": 0.2}
        assert (await client.call_tool("compile", arguments)).structured_content["status"] == "running"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        purse = ledger.purse("r1")
        assert ledger.open_holds("r1") == ()
        assert purse.settled.check_calls == 1
        assert purse.settled.device_s > 0
        assert spent_per_rung(ledger, "r1")["check"] == purse.settled.device_s
        assert [result.rung.value for result in ledger.results("c1")] == ["compile"]
    assert audit(tmp_path / "ledger.db").ok
    assert show_runs(settings, "r1", close=False) == 0
    shown = capsys.readouterr().out
    spent = f"{purse.settled.device_s:.3f}"
    assert f"{purse.settled.device_s:.2f}" in next(line for line in shown.splitlines() if line.startswith("c1 "))
    assert spent in next(line for line in shown.splitlines() if line.startswith("check "))
    assert f"Spent {spent} device seconds ({spent} s of it without a verdict)" in " ".join(shown.split())


async def test_a_second_try_that_the_server_leaves_is_charged_with_the_first(tmp_path: Path) -> None:
    caps: list[float] = []

    def slow(request: WorkerRequest) -> WorkerReply:
        caps.append(request.cap_s)
        runner.hang_at("check_correctness", WAITING)
        ended = ChildExit(kind="cap_reached")
        return WorkerReply(request_id=request.request_id, exit=ended, lease_s=request.cap_s, wall_s=25.0)

    runner, _ = scripted(slow)
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "check_correctness", "wait_s": 0.2}
        assert (await client.call_tool("compile", arguments)).structured_content["status"] == "running"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        (charge,) = ledger.query("SELECT outcome, cpu_s, work_s FROM charges WHERE rung = 'check'")
        assert charge == {"outcome": "cancelled", "cpu_s": pytest.approx(caps[0]), "work_s": 25.0}
    assert audit(tmp_path / "ledger.db").ok


async def test_work_that_only_waited_for_the_device_costs_nothing_when_the_server_leaves(tmp_path: Path) -> None:
    runner, _ = scripted(correct)
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        runner.hang_at("check_correctness", WAITING)
        arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "check_correctness", "wait_s": 0.2}
        assert (await client.call_tool("compile", arguments)).structured_content["status"] == "running"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.open_holds("r1") == ()
        assert ledger.purse("r1").settled.check_calls == 0

"""Whose fault it is: one of ours is tried again wherever it happens; only the second may be the candidate's."""

import time
from pathlib import Path
from typing import Final

import pytest
from fakes import FakeRunner
from going_well import Answer, built, correct, qualified
from live_server import forward
from mcp import Client
from test_gate import checked, our_fault, scripted

from kernelgate.budget.audit import audit
from kernelgate.budget.clock import SystemClock
from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.runner import OnProgress
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest

pytestmark = pytest.mark.anyio
LIMIT_S: Final = 60.0
"""Of a check; a first hold is smaller."""


def cap_reached(request: WorkerRequest) -> WorkerReply:
    ended = ChildExit(kind="cap_reached")
    return WorkerReply(request_id=request.request_id, exit=ended, lease_s=request.cap_s, wall_s=request.cap_s)


def cut_and_silent(request: WorkerRequest) -> WorkerReply:
    """Its time was up, and then our side did not answer."""
    return cap_reached(request).model_copy(update={"fault": "The referee did not answer within 30 s."})


TRIES: Final[dict[str, Answer]] = {"fault": our_fault, "silent": cut_and_silent, "cap": cap_reached, "good": correct}

TWO_FAULTS: Final = [("fault", "fault"), ("cap", "fault", "fault"), ("fault", "cap", "fault")]


def one_after_the_other(*tries: str) -> tuple[Answer, list[float]]:
    """Answers in that order, and the caps of those that were asked for."""
    caps: list[float] = []

    def answer(request: WorkerRequest) -> WorkerReply:
        caps.append(request.cap_s)
        return TRIES[tries[len(caps) - 1]](request)

    return answer, caps


@pytest.mark.parametrize(
    ("tries", "verdict"),
    [
        (("fault", "good"), "correct"),
        (("silent", "good"), "correct"),
        (("fault", "cap", "good"), "correct"),
        (("cap", "fault", "good"), "correct"),
        (("cap", "fault", "cap"), "timed_out"),
        (("silent", "cap", "cap"), "timed_out"),
    ],
    ids="-".join,
)
async def test_one_fault_is_tried_again_wherever_it_happens_and_is_paid_by_the_house(
    tmp_path: Path, tries: tuple[str, ...], verdict: str
) -> None:
    check, caps = one_after_the_other(*tries)
    runner, asked = scripted(check)
    async with checked(tmp_path, runner) as (result, ledger):
        assert result.structured_content["verdict"] == verdict
        first_s = caps[0]
        extended = tries.count("cap") > (verdict == "timed_out")
        judged_s = LIMIT_S if verdict == "timed_out" else 0.5
        assert ledger.purse("r1").settled.device_s == pytest.approx(judged_s + (first_s if extended else 0.0))
        faulted_s = {"fault": 0.3, "silent": first_s}[next(name for name in tries if name in ("fault", "silent"))]
        assert ledger.results("c1")[-1].house_s == pytest.approx(faulted_s)
    assert len(caps) == len(tries)
    assert "check_correctness of known good" not in asked


@pytest.mark.parametrize(
    "tries",
    [("fault", "fault"), ("cap", "fault", "fault"), ("fault", "cap", "fault"), ("silent", "silent")],
    ids="-".join,
)
async def test_a_second_fault_is_the_candidates_where_a_known_good_one_passes_the_same_work(
    tmp_path: Path, tries: tuple[str, ...]
) -> None:
    check, caps = one_after_the_other(*tries)
    runner, asked = scripted(check)
    async with checked(tmp_path, runner) as (result, ledger):
        assert result.structured_content["verdict"] == "crashed"
        assert ledger.results("c1")[-1].code == "FAULT_FARMING"
        assert ledger.purse("r1").settled.check_calls == 1
    assert len(caps) == len(tries)
    assert asked.count("check_correctness of known good") == 1


@pytest.mark.parametrize(
    "tries", [("fault", "fault"), ("cap", "fault", "fault"), ("fault", "cap", "fault")], ids="-".join
)
async def test_a_second_fault_is_ours_where_a_known_good_one_meets_it_too_and_costs_nothing(
    tmp_path: Path, tries: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    check, caps = one_after_the_other(*tries)
    # What a call is said to have used goes by on the book's clock too.
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: time.monotonic() + sum(caps))
    runner, _ = scripted(check, our_fault)
    async with checked(tmp_path, runner) as (result, ledger):
        assert result.is_error
        assert "Nothing was charged" in result.content[0].text
        assert ledger.purse("r1").settled.check_calls == 0
        used_s = sum({"fault": 0.3, "cap": caps[0]}[name] for name in tries)
        (paid,) = ledger.query("SELECT sum(cpu_s) AS s FROM events WHERE account_id = 'house'")
        assert paid["s"] == pytest.approx(used_s)


class SilentWhenCancelled(FakeRunner):
    """A fake whose check runs until it is cancelled, and then meets a fault of ours."""

    async def cancel(self, request_id: int) -> None:
        for request in self.requests:
            if request.request_id == request_id:
                ended = ChildExit(kind="cancelled")
                fault = WorkerReply(request_id=request_id, exit=ended, fault="The referee did not answer.", lease_s=0.3)
                self._open[request_id].set_result(fault)

    async def run(self, request: WorkerRequest, on_progress: OnProgress) -> WorkerReply:
        answers: dict[str, Answer] = {"qualify": qualified, "compile": built}
        self._script = answers.get(request.procedure)
        return await super().run(request, on_progress)


async def test_a_single_fault_is_never_the_candidates_also_where_a_cancel_forbids_a_second_try(
    tmp_path: Path,
) -> None:
    runner = SilentWhenCancelled()
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "check_correctness", "wait_s": 0.2}
        assert (await client.call_tool("compile", arguments)).structured_content["status"] == "running"
        cancelled = await client.call_tool("job", {"job_id": "j1", "action": "cancel", "wait_s": 10})
        assert "Nothing was charged" in cancelled.content[0].text
    assert [request.procedure for request in runner.requests] == ["qualify", "compile", "check_correctness"]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.open_holds("r1") == ()
        assert ledger.purse("r1").settled.check_calls == 0
    assert audit(tmp_path / "ledger.db").ok


def with_last_words(request: WorkerRequest) -> WorkerReply:
    """Our side died, and what it had printed came with the fault."""
    printed = 'Traceback (most recent call last):\n  File "/srv/kernelgate/referee.py", line 1, in serve\nMine: hello'
    ended = ChildExit(kind="signalled", status=9)
    return WorkerReply(request_id=request.request_id, exit=ended, fault=f"The referee was lost: it ended.\n{printed}")


@pytest.mark.parametrize("known_good", [with_last_words, correct], ids=["ours", "the candidate's"])
async def test_a_fault_is_told_in_one_line_without_what_a_dying_process_printed(
    tmp_path: Path, known_good: Answer
) -> None:
    runner, _ = scripted(with_last_words, known_good)
    async with checked(tmp_path, runner) as (result, ledger):
        said = result.content[0].text if result.is_error else result.structured_content["summary"]
        assert "The referee was lost: it ended" in said
        assert "\n" not in said
        assert ".py" not in said
        rows = ledger.query("SELECT reason FROM events WHERE kind = 'release'")
        assert not any("Traceback" in row["reason"] for row in rows)


async def test_a_reference_that_takes_the_referee_down_is_refused_in_one_line(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, device="cpu")
    runner = FakeRunner(with_last_words)
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        refused = await client.call_tool("start_run", {"task": "softmax"})
    assert refused.is_error
    assert "The referee was lost: it ended" in refused.content[0].text
    assert "\n" not in refused.content[0].text
    assert ".py" not in refused.content[0].text

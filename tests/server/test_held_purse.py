"""A purse that is only held by calls under way: whoever is refused meanwhile is told to wait, not that it is over."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import built, correct, qualified
from live_server import forward
from mcp import Client

from kernelgate.budget.audit import audit
from kernelgate.budget.model import Amount, Budget, Purse, Rung, Spent
from kernelgate.budget.purse import shortage
from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.runner import OnProgress
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest

pytestmark = pytest.mark.anyio


class OneHangs(FakeRunner):
    """A fake whose checks of one candidate run until they are cancelled; others are answered by the script."""

    def __init__(self, check: Callable[[WorkerRequest], WorkerReply] = correct) -> None:
        answers = {"qualify": qualified, "compile": built, "check_correctness": check}
        super().__init__(lambda request: answers[request.procedure](request))
        self._endless = FakeRunner()

    async def run(self, request: WorkerRequest, on_progress: OnProgress) -> WorkerReply:
        hangs = request.procedure == "check_correctness" and "slow" in "".join(request.files.values())
        return await (self._endless if hangs else super()).run(request, on_progress)

    async def cancel(self, request_id: int) -> None:
        await self._endless.cancel(request_id)


@asynccontextmanager
async def slow_call(folder: Path, runner: FakeRunner, **budget: Any) -> AsyncIterator[tuple[Client, str]]:
    """A client whose first call is under way for as long as the test wants, and the id of its job."""
    settings = Settings(data_dir=folder, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax", **budget})
        running = await checked(client, "slow = x", wait_s=0.2)
        assert running["status"] == "running"
        yield client, running["job_id"]
    assert audit(folder / "ledger.db").ok


async def checked(client: Client, body: str, **more: Any) -> Mapping[str, Any]:
    source = forward(f"{body}\nreturn x")
    arguments = {"run_id": "r1", "source": source, "up_to": "check_correctness", **more}
    result = await client.call_tool("compile", arguments)
    assert not result.is_error, result.content
    return result.structured_content or {}


async def test_who_is_refused_because_others_hold_the_purse_waits_for_their_job_and_is_let_in(tmp_path: Path) -> None:
    async with slow_call(tmp_path, OneHangs(), device_s=4.0) as (client, slow):
        refused = await checked(client, "pass")
        assert refused["refusal"]["kind"] == "purse"
        assert "4.000 device seconds are held by calls under way" in refused["refusal"]["why"]
        assert "wait for the calls under way (job), then ask again" in refused["refusal"]["missing"]
        first, *others = refused["next_steps"]
        assert (first["tool"], first["arguments"]) == ("job", {"job_id": slow})
        assert "4.00 device seconds are held by calls under way" in first["why"]
        (check,) = [step for step in others if step["tool"] == "check_correctness"]
        assert check["allowed"] is False
        assert check["missing"].endswith("wait for them with job, then ask again")
        assert "stop_advice" not in refused
        await client.call_tool("job", {"job_id": slow, "action": "cancel", "wait_s": 10})
        assert (await checked(client, "pass"))["verdict"] == "correct"


async def test_time_before_the_deadline_that_is_only_held_is_waited_for_too(tmp_path: Path) -> None:
    async with slow_call(tmp_path, OneHangs(), deadline_s=5.0) as (client, slow):
        refused = await checked(client, "pass")
        assert (refused["rung"], refused["refusal"]["kind"]) == ("compile", "deadline")
        assert "s of work are held by calls under way" in refused["refusal"]["why"]
        assert "wait for the calls under way (job), then ask again" in refused["refusal"]["missing"]
        assert refused["next_steps"][0]["arguments"] == {"job_id": slow}
        await client.call_tool("job", {"job_id": slow, "action": "cancel", "wait_s": 10})
        assert (await checked(client, "pass"))["verdict"] == "correct"


async def test_work_that_cannot_be_extended_because_others_hold_the_purse_is_told_to_wait(tmp_path: Path) -> None:
    def endless(request: WorkerRequest) -> WorkerReply:
        ended = ChildExit(kind="cap_reached")
        return WorkerReply(request_id=request.request_id, exit=ended, lease_s=request.cap_s, wall_s=request.cap_s)

    async with slow_call(tmp_path, OneHangs(endless), device_s=8.0) as (client, slow):
        refused = await checked(client, "pass")
        assert refused["refusal"]["kind"] == "purse"
        assert "what it used was charged. 4.00 device seconds are held by calls under way" in refused["summary"]
        assert "wait for them (job), then ask again" in refused["summary"]
        assert refused["next_steps"][0]["arguments"] == {"job_id": slow}


def test_a_purse_that_is_spent_is_not_waited_for() -> None:
    spent = Purse(granted=Budget(device_s=4.0), settled=Spent(device_s=4.0))
    lacking = shortage(spent, None, Rung.check, Amount(calls=1, cpu_s=1.0), Amount(cpu_s=0.05))
    assert lacking == ("purse", "0.000 device seconds are left, and check needs 0.050.", "0.050 more device seconds.")
    late = Purse(granted=Budget(deadline_s=5.0), settled=Spent(work_s=5.0))
    lacking = shortage(late, None, Rung.check, Amount(calls=1, work_s=1.0), Amount())
    assert lacking is not None
    assert lacking[2] == "Time before the deadline: a new run has its own."


def test_a_call_that_asks_for_more_is_not_told_to_wait_for_what_it_holds_itself() -> None:
    own = Amount(calls=1, cpu_s=3.0, work_s=5.0)
    purse = Purse(granted=Budget(device_s=4.0, deadline_s=9.0), open=Spent(device_s=3.0, work_s=5.0, precise_calls=1),
                  settled=Spent(device_s=1.0, work_s=4.0))  # fmt: skip
    for more in (Amount(cpu_s=1.0), Amount(work_s=1.0)):
        lacking = shortage(purse, None, Rung.precise, more, Amount(), own)
        assert lacking is not None
        assert "held by calls under way" not in lacking[1]
        others = shortage(purse, None, Rung.precise, more, Amount(), Amount(cpu_s=1.0, work_s=1.0))
        assert others is not None
        assert "held by calls under way" in others[1]

"""Seconds of a device that a server used before it was killed, or before its client left, are the house's."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import PUBLIC, built, correct, qualified, timed
from live_server import forward
from mcp import Client

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.measure import KNOWN_GOOD, WAITING
from kernelgate.server.services import Services, open_services
from kernelgate.server.settings import Settings
from kernelgate.server.watch import beat
from kernelgate.tools.kit.runner import OnProgress
from kernelgate.tools.kit.wire import WorkerRequest

pytestmark = pytest.mark.anyio

ANSWERS = {
    "qualify": qualified, "compile": built, "check_correctness": correct,
    "quick_time": lambda request: timed(request, *PUBLIC),
}  # fmt: skip


class Endless(FakeRunner):
    """A fake that never answers one procedure, and says how far that is."""

    def __init__(self, procedure: str, stage: str = "begun") -> None:
        super().__init__(lambda request: ANSWERS[request.procedure](request))
        self._procedure, self._stage, self._endless = procedure, stage, FakeRunner()

    async def run(self, request: WorkerRequest, on_progress: OnProgress) -> Any:
        if request.procedure != self._procedure:
            return await super().run(request, on_progress)
        self.requests.append(request)
        return await self._endless.run(
            request, lambda progress: on_progress(progress.model_copy(update={"stage": self._stage}))
        )


@asynccontextmanager
async def at_work(folder: Path, runner: FakeRunner, up_to: str) -> AsyncIterator[Services]:
    """A server whose worker is in the middle of a rung; it leaves at the end."""
    opened: list[Services] = []

    @asynccontextmanager
    async def services() -> AsyncGenerator[Services]:
        async with open_services(Settings(data_dir=folder, device="cpu"), runners={"cpu": runner}) as found:
            opened.append(found)
            yield found

    async with Client(build(services)) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        arguments = {"run_id": "r1", "source": forward("return x"), "up_to": up_to, "wait_s": 0.2}
        reply = await client.call_tool("compile", arguments)
        assert (reply.structured_content or {})["status"] == "running"
        yield opened[0]


def overruns(ledger: Ledger) -> list[dict[str, Any]]:
    return ledger.query("SELECT account_id, cpu_s, reason FROM events WHERE kind = 'overrun'")


async def test_a_killed_server_leaves_what_its_last_heartbeat_said_to_the_house(tmp_path: Path) -> None:
    async with at_work(tmp_path, Endless("check_correctness"), "check_correctness") as services:
        await beat(services.ledger, services.workshop)
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            (job,) = ledger.query("SELECT used_hold_seq, used_device_s FROM jobs")
            assert job["used_device_s"] > 0
            assert ledger.open_holds("r1") == (job["used_hold_seq"],)
            ledger.sweep(lambda owner, quiet_s: False)  # as the next server does after a kill
            (overrun,) = overruns(ledger)
            assert (overrun["account_id"], overrun["cpu_s"]) == ("house", job["used_device_s"])
            assert overrun["reason"].startswith("owner_lost: ")
            assert "; estimated: " in overrun["reason"]
            assert ledger.purse("r1").settled.device_s == 0
    assert audit(tmp_path / "ledger.db").ok


async def test_a_killed_server_that_only_waited_for_the_device_used_none(tmp_path: Path) -> None:
    async with at_work(tmp_path, Endless("check_correctness", WAITING), "check_correctness") as services:
        await beat(services.ledger, services.workshop)
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            assert ledger.query("SELECT used_device_s FROM jobs") == [{"used_device_s": 0.0}]
            assert ledger.sweep(lambda owner, quiet_s: False).released
            assert overruns(ledger) == []


async def test_a_calibration_that_is_broken_off_when_the_client_leaves_is_the_houses(tmp_path: Path) -> None:
    runner = Endless("precise_time")
    async with at_work(tmp_path, runner, "precise_time") as services:
        assert any(KNOWN_GOOD in text for text in runner.requests[-1].files.values()), "it is the calibration that runs"
        await beat(services.ledger, services.workshop)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        (job,) = ledger.query("SELECT used_device_s FROM jobs")
        (overrun,) = overruns(ledger)
        assert overrun["account_id"] == "house"
        assert overrun["cpu_s"] >= job["used_device_s"] > 0
        assert overrun["reason"] == "fault_of_ours: the server left before the work began"
        assert ledger.purse("r1").settled.precise_calls == 0
        assert ledger.open_holds("r1") == ()
    assert audit(tmp_path / "ledger.db").ok

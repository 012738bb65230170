"""A small gain is measured in further fresh processes before it is told, all within one hold."""

from pathlib import Path
from typing import Any

import pytest
from going_well import Answer, as_fast, steady, timed, worker
from live_server import forward
from mcp import Client

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest
from kernelgate.tools.precise_time import PROCESSES

SMALL = 1.03


class InTurn:
    """Answers precise timings one after the other; the last answer again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[WorkerRequest] = []
        self._answers = answers

    def __call__(self, request: WorkerRequest) -> WorkerReply:
        self.requests.append(request)
        return self._answers[min(len(self.requests), len(self._answers)) - 1](request)


def gains(gain: float, **more: Any) -> Answer:
    return lambda request: timed(request, steady("64x256", gain=gain), steady("1024x1024", gain=gain), **more)


def cut(request: WorkerRequest) -> WorkerReply:
    return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="cap_reached"), lease_s=request.cap_s)


def fault(request: WorkerRequest) -> WorkerReply:
    return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="exited"), fault="It fell over.", lease_s=0.1)


async def precise(folder: Path, answers: InTurn, known_good: Answer | None = None) -> dict[str, Any]:
    runner = worker(answers, known_good)
    server = build(lambda: open_services(Settings(data_dir=folder, device="cpu"), runners={"cpu": runner}))
    async with Client(server) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "quick_time"}
        await client.call_tool("compile", arguments)
        reply = await client.call_tool("precise_time", {"candidate_id": "c1"})
        return reply.structured_content or {"error": reply.content}


def rows(folder: Path, query: str) -> list[Any]:
    with Ledger.open(folder / "ledger.db") as ledger:
        return [tuple(dict(row).values()) for row in ledger.query(query)]


@pytest.mark.anyio
async def test_a_small_gain_is_measured_again_in_fresh_processes_and_paid_as_one_call(tmp_path: Path) -> None:
    asked = InTurn(gains(SMALL))
    reply = await precise(tmp_path, asked)
    assert reply["verdict"] == "faster", reply
    assert len(asked.requests) == PROCESSES
    assert reply["report"]["processes"] == PROCESSES
    assert reply["cost"]["charged_s"] == pytest.approx(PROCESSES * 0.5)
    assert asked.requests[1].cap_s == pytest.approx(asked.requests[0].cap_s - 0.5), "one limit for all of them"
    states = rows(tmp_path, "SELECT json_extract(state_json, '$.process') FROM samples")
    assert {state[0] for state in states} == {None, *range(1, PROCESSES)}, "every block of each is in the book"
    assert audit(tmp_path / "ledger.db").ok


@pytest.mark.anyio
async def test_a_large_gain_and_no_gain_are_measured_in_one(tmp_path: Path) -> None:
    for number, gain in enumerate((2.0, 1.0, 0.9)):
        asked = InTurn(gains(gain))
        reply = await precise(tmp_path / str(number), asked)
        assert len(asked.requests) == 1, reply["summary"]


@pytest.mark.anyio
async def test_a_gain_that_a_second_process_does_not_show_is_not_told(tmp_path: Path) -> None:
    asked = InTurn(gains(SMALL), gains(1.0))
    reply = await precise(tmp_path, asked)
    assert (reply["verdict"], len(asked.requests)) == ("ambiguous", 2)


@pytest.mark.anyio
async def test_a_hold_that_ends_in_a_further_process_is_extended_and_all_of_it_measured_again(tmp_path: Path) -> None:
    asked = InTurn(gains(SMALL), cut, gains(2.0))
    reply = await precise(tmp_path, asked)
    assert (reply["verdict"], len(asked.requests)) == ("faster", 3)
    assert reply["cost"]["charged_s"] == pytest.approx(asked.requests[0].cap_s + 0.5), "what was used is charged"
    assert audit(tmp_path / "ledger.db").ok


@pytest.mark.anyio
async def test_a_fault_of_ours_in_a_further_process_costs_nothing(tmp_path: Path) -> None:
    reply = await precise(tmp_path, InTurn(gains(SMALL), fault), InTurn(as_fast, fault))
    assert "Nothing was charged" in str(reply["error"])
    assert audit(tmp_path / "ledger.db").ok


@pytest.mark.anyio
async def test_a_process_that_reached_the_limit_as_it_ended_is_extended_and_not_a_mistake_of_the_server(
    tmp_path: Path,
) -> None:
    def to_the_end(request: WorkerRequest) -> WorkerReply:
        return gains(SMALL, lease_s=request.cap_s + 0.01)(request)

    asked = InTurn(to_the_end, gains(2.0))
    reply = await precise(tmp_path, asked)
    assert (reply.get("verdict"), len(asked.requests)) == ("faster", 2), reply
    assert reply["cost"]["charged_s"] == pytest.approx(asked.requests[0].cap_s + 0.01 + 0.5)
    assert audit(tmp_path / "ledger.db").ok


@pytest.mark.anyio
async def test_a_device_that_was_held_back_while_its_noise_was_measured_is_not_called_quiet(tmp_path: Path) -> None:
    def hot(request: WorkerRequest) -> WorkerReply:
        even = steady("64x256", gain=1.0)
        voided = tuple(pair.model_copy(update={"void": "the device was too hot"}) for pair in even.pairs)
        return timed(request, even.model_copy(update={"pairs": (), "voided": voided}))

    reply = await precise(tmp_path, InTurn(gains(1.5)), known_good=hot)
    assert reply["verdict"] != "faster", reply["summary"]
    assert not rows(tmp_path, "SELECT * FROM calibrations WHERE kind = 'noise_floor'"), "the next one measures it"

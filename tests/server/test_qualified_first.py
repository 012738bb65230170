"""A task is tried before a run is opened; one that takes too long is refused in one sentence."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes import FakeRunner
from going_well import Answer, built, correct, finished, qualified
from live_server import forward
from mcp import Client

from kernelgate.budget.audit import audit
from kernelgate.server.app import build
from kernelgate.server.services import Services, open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest


@pytest.mark.anyio
async def test_a_reference_that_takes_minutes_is_told_what_to_do(tmp_path: Path) -> None:
    runner = FakeRunner(lambda request: finished(request, None, exit=ChildExit(kind="cap_reached")))
    server = build(lambda: open_services(Settings(data_dir=tmp_path, device="cpu"), {"cpu": runner}))
    async with Client(server) as client:
        refused = await client.call_tool("start_run", {"task": "softmax"})
    assert refused.is_error
    assert "took more than 240 s: give it smaller workloads in a task.toml" in refused.content[0].text


CANDIDATE = forward("return torch.softmax(x, -1)")


def unfit(request: WorkerRequest) -> WorkerReply:
    facts: Any = qualified(request).facts
    return finished(request, {**facts, "trials": [{**trial, "passes": True} for trial in facts["trials"]]})


@asynccontextmanager
async def in_environment(folder: Path, harness: str, qualifies: Answer) -> AsyncIterator[tuple[Any, list[str]]]:
    """A client of a server whose harness has this digest, and the procedures that its worker was asked for."""
    asked: list[str] = []
    answers = {"qualify": qualifies, "compile": built, "check_correctness": correct}

    def answer(request: WorkerRequest) -> WorkerReply:
        asked.append(request.procedure)
        return answers[request.procedure](request)

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Services]:
        async with open_services(Settings(data_dir=folder, device="cpu"), {"cpu": FakeRunner(answer)}) as services:
            services.harness = harness
            yield services

    async with Client(build(opened)) as client:
        yield client, asked


@pytest.mark.anyio
async def test_a_run_that_goes_on_in_another_environment_has_its_task_tried_there_once_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    climb = {"run_id": "r1", "source": CANDIDATE, "up_to": "check_correctness"}
    async with in_environment(tmp_path, "a" * 64, qualified) as (client, asked):
        await client.call_tool("start_run", {"task": "softmax"})
        assert (await client.call_tool("compile", climb)).structured_content["verdict"] == "correct"
        assert asked == ["qualify", "compile", "check_correctness"]
    async with in_environment(tmp_path, "b" * 64, qualified) as (client, asked):
        resumed = await client.call_tool("start_run", {"task": "softmax", "resume": "r1"})
        assert not resumed.is_error, resumed.content
        for source in (CANDIDATE, CANDIDATE + "# again\n"):
            found = (await client.call_tool("compile", {**climb, "source": source})).structured_content
            assert found["verdict"] == "correct"
        assert asked == ["compile", "qualify", "check_correctness", "compile", "check_correctness"]
    assert audit(tmp_path / "ledger.db").ok


@pytest.mark.anyio
async def test_a_run_whose_task_is_not_sound_in_another_environment_is_refused_there_and_pays_nothing(
    tmp_path: Path,
) -> None:
    async with in_environment(tmp_path, "a" * 64, qualified) as (client, _):
        await client.call_tool("start_run", {"task": "softmax"})
    async with in_environment(tmp_path, "b" * 64, unfit) as (client, asked):
        await client.call_tool("start_run", {"task": "softmax", "resume": "r1"})
        climb = {"run_id": "r1", "source": CANDIDATE, "up_to": "check_correctness"}
        first, again = [(await client.call_tool("compile", climb)).structured_content for _ in range(2)]
        assert asked == ["compile", "qualify"], "what was found is in the book, and nothing is measured on it"
    for reply in (first, again):
        assert (reply["status"], reply["refusal"]["kind"]) == ("refused", "task_unqualified")
        assert "not qualify in this environment" in reply["summary"]
        assert "mutant zeros" in reply["summary"]
        assert reply["cost"]["charged_s"] == 0
    assert audit(tmp_path / "ledger.db").ok


@pytest.mark.anyio
async def test_a_device_that_others_hold_says_nothing_against_a_task(tmp_path: Path) -> None:
    def leased(request: WorkerRequest) -> WorkerReply:
        why = "The device cpu was leased by others for 120 s; try again when they are done."
        return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="not_started"), fault=why)

    asked = iter((leased, qualified))
    runner = FakeRunner(lambda request: next(asked)(request))
    server = build(lambda: open_services(Settings(data_dir=tmp_path, device="cpu"), {"cpu": runner}))
    async with Client(server) as client:
        refused = await client.call_tool("start_run", {"task": "softmax"})
        again = await client.call_tool("start_run", {"task": "softmax"})
    assert refused.is_error
    assert "could not be tried yet: The device cpu was leased by others" in refused.content[0].text
    assert "does not qualify" not in refused.content[0].text
    assert not again.is_error


@pytest.mark.anyio
async def test_many_who_open_a_run_at_once_have_its_task_tried_once(tmp_path: Path) -> None:
    opened: list[str] = []

    async def opening(client: Client) -> None:
        opened.append((await client.call_tool("start_run", {"task": "softmax"})).structured_content["run"]["run_id"])

    async with in_environment(tmp_path, "h", qualified) as (client, asked), anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(opening, client)
    assert sorted(opened) == [f"r{number}" for number in range(1, 7)]
    assert asked.count("qualify") == 1

"""What a profile of full depth leaves in the book, and what it costs beside the cheaper one."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from going_well import PUBLIC, finished, steady, timed, worker
from live_server import forward
from mcp import Client
from pydantic import JsonValue
from synthetic import CEILINGS

from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import WorkerReply, WorkerRequest
from kernelgate.tools.profile import FULL_HOLD_S

pytestmark = pytest.mark.anyio
REPORT = b"as ncu wrote it"


def profiled(request: WorkerRequest) -> WorkerReply:
    """Slower candidates of a run were profiled with more launches and less of DRAM; full depth costs ten seconds."""
    first = "first" in request.files["candidate.py"]
    rows: list[JsonValue] = [{"name": "k", "calls": 30 if first else 10, "self_us": 900.0, "share": 1.0}]
    profile: JsonValue = {"workload": "w", "calls": 10, "call_us": 82.0 if first else 41.0, "operators": rows}
    facts: dict[str, JsonValue] = {
        "workload": steady("w").workload.model_dump(mode="json"), "profile": profile, "on_gpu": True,
        "ceilings": CEILINGS.model_dump(mode="json"),
    }  # fmt: skip
    if request.plan["depth"] == "full":
        seen: JsonValue = {"name": "k", "us": 40.0, "blocks": 8, "threads": 128, "registers": 32, "values": {"l1": 0.9}}
        facts["inspection"] = {"kernels": [seen], "launches": 1, "report": base64.b64encode(REPORT).decode()}
    return finished(request, facts, lease_s=10.0 if request.plan["depth"] == "full" else 0.5, wall_s=10.5)


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Client]:
    runner = worker(lambda request: timed(request, *PUBLIC), profile=profiled)
    settings = Settings(data_dir=folder, device="cpu")
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await ask(client, "start_run", task="softmax", rule="flat")
        yield client


async def ask(client: Client, tool: str, **arguments: Any) -> Mapping[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content or {}


def contents(place: str) -> bytes:
    return Path(place).read_bytes()


async def climbed(client: Client, word: str, **more: Any) -> None:
    source = f"# {word}\n{forward('return x')}"
    reply = await ask(client, "compile", run_id="r1", source=source, up_to="quick_time", **more)
    assert reply["rung"] == "quick"


async def test_full_depth_keeps_ncus_report_beside_the_ledger_and_says_where(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await climbed(client, "first")
        reply = await ask(client, "profile", candidate_id="c1", depth="full")
        assert reply["report"]["kernels"][0]["name"] == "k"
        refused = await client.call_tool("get_candidate", {"candidate_id": "c1", "text": "profile.ncu-rep"})
    said = str(refused.content)
    assert "is no text: open " in said
    assert contents(next(word for word in said.split() if word.startswith(str(tmp_path)))) == REPORT


async def test_the_price_of_a_profile_is_not_learned_from_full_depth(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await climbed(client, "first")
        await ask(client, "profile", candidate_id="c1", depth="full")
        await ask(client, "profile", candidate_id="c1")
        budget = await ask(client, "get_budget", run_id="r1")
    price = budget["run"]["prices_s"]["profile"]
    assert price == pytest.approx(0.5)


async def test_a_profile_of_full_depth_is_charged_what_it_took(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await ask(client, "start_run", task="softmax", rule="flat", device_s=FULL_HOLD_S)
        source = f"# other\n{forward('return x')}"
        await ask(client, "compile", run_id="r2", source=source, up_to="quick_time")
        reply = await ask(client, "profile", candidate_id="c1", depth="full")
    assert reply["status"] == "ok", "a call may be cut at what is left of its hold"
    assert reply["cost"]["charged_s"] == pytest.approx(10.0)


async def test_each_depth_is_answered_from_the_book_by_itself(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await climbed(client, "first")
        await ask(client, "profile", candidate_id="c1")
        full = await ask(client, "profile", candidate_id="c1", depth="full")
        again = await ask(client, "profile", candidate_id="c1", depth="full")
    assert not full.get("replayed")
    assert again["replayed"]


async def test_what_moved_since_the_parents_profile_is_told(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await climbed(client, "first")
        await ask(client, "profile", candidate_id="c1")
        await climbed(client, "second", parent_id="c1", note="fused")
        reply = await ask(client, "profile", candidate_id="c2")
    assert "against c1: a call 82 → 41 µs, launches 3 → 1" in reply["summary"]

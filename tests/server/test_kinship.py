"""Near-duplicates are said when they are submitted, parents are listed with their kind, and lists fit a reply."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import PUBLIC, correct, finished, qualified, timed, worker
from live_server import forward
from mcp import Client

from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import WorkerReply, WorkerRequest

pytestmark = pytest.mark.anyio
Call = Callable[..., Awaitable[dict[str, Any]]]
SOURCE = forward("scale = x.amax(-1, keepdim=True)\nreturn torch.softmax(x - scale, -1)")
RENAMED = SOURCE.replace("scale", "m").replace("import torch\n", "import torch  # again\n\n")
OTHER = forward("y = x.exp_()\nreturn y / y.sum(-1, keepdim=True)")


def precise(request: WorkerRequest) -> WorkerReply:
    return timed(request, *PUBLIC)


@asynccontextmanager
async def server(folder: Path, runner: FakeRunner | None = None) -> AsyncIterator[Call]:
    runner = runner or worker(precise)
    settings = Settings(data_dir=folder, device="cpu")

    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        return dict(result.structured_content)

    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await call("start_run", task="softmax")
        yield call


async def test_a_near_duplicate_is_named_when_it_is_submitted_and_measured_for_itself(tmp_path: Path) -> None:
    async with server(tmp_path) as call:
        first = await call("compile", run_id="r1", source=SOURCE, up_to="check_correctness")
        assert "near-duplicate" not in first["summary"]
        again = await call("compile", run_id="r1", source=RENAMED, up_to="check_correctness")
        assert again["candidate_id"] == "c2"
        assert again["summary"].endswith("; near-duplicate of c1: the same code up to comments, layout and local names")
        assert again["cost"]["charged_s"] > 0, "a warning, never an answer from the results of another source"
        other = await call("compile", run_id="r1", source=OTHER)
        assert "near-duplicate" not in other["summary"]
        third = await call("compile", run_id="r1", source=RENAMED.replace("again", "a third time"))
        assert "near-duplicate of c1" in third["summary"]
        checked = await call("check_correctness", candidate_id="c2")
        assert "near-duplicate" not in checked["summary"], "said once, at submission"


async def test_the_very_same_source_is_said_to_be_known(tmp_path: Path) -> None:
    async with server(tmp_path) as call:
        await call("compile", run_id="r1", source=SOURCE)
        again = await call("compile", run_id="r1", source=SOURCE, up_to="check_correctness")
        assert again["summary"].endswith("; this very source was submitted before: it is c1")
        assert again["candidate_id"] == "c1"


async def test_a_near_duplicate_of_another_run_is_no_near_duplicate(tmp_path: Path) -> None:
    async with server(tmp_path) as call:
        await call("compile", run_id="r1", source=SOURCE)
        await call("start_run", task="softmax")
        assert "near-duplicate" not in (await call("compile", run_id="r2", source=RENAMED))["summary"]


async def test_parents_are_the_best_and_other_structures_with_lineage(tmp_path: Path) -> None:
    async with server(tmp_path) as call:
        none = await call("list_candidates", run_id="r1", order="parents")
        assert none["summary"] == "no parent yet among 0 candidates in r1."
        await call("compile", run_id="r1", source=SOURCE, up_to="quick_time")
        await call(
            "compile",
            run_id="r1",
            source=RENAMED,
            up_to="precise_time",
            parent_id="c1",
            override_reason="fewer passes over memory",
        )
        await call("compile", run_id="r1", source=OTHER, up_to="check_correctness", parent_id="c1")
        listed = await call("list_candidates", run_id="r1", order="parents")
        assert listed["summary"] == "2 parents of different structure among 3 candidates in r1."
        best, other = listed["candidates"]
        assert (best["candidate_id"], best["why"], best["lineage"]) == ("c2", "the best so far", "c1 > c2")
        assert best["structure"] == "torch; softmax"
        assert (other["candidate_id"], other["lineage"]) == ("c3", "c1 > c3")
        assert other["why"] == "unlike c2: with in place, without softmax"
        assert listed["total"] == 2


def two_kernels_in_three_configurations(request: WorkerRequest) -> WorkerReply:
    """A build whose kernels are not all written down as such in the source."""
    binary = {
        "target": "sm_90", "registers": 32, "spill_bytes": 0, "shared_bytes": 0, "warps": 4, "tensor_cores": False,
        "vector_loads": True,
    }  # fmt: skip
    trace = {"on": "fake_cuda", "workloads": ["64x256"], "complete": True, "launches": 2}
    kernels = [{"name": name, **binary} for name in ("rows", "rows", "columns")]
    return finished(request, {"language": "triton", "trace": trace, "kernels": kernels}, wall_s=0.2)


async def test_kernels_are_counted_as_the_build_compiled_them_whatever_their_configurations(tmp_path: Path) -> None:
    answers = {
        "qualify": qualified, "compile": two_kernels_in_three_configurations, "check_correctness": correct,
    }  # fmt: skip
    runner = FakeRunner(lambda request: answers[request.procedure](request))
    async with server(tmp_path, runner) as call:
        source = f"import triton\n{SOURCE}BLOCK = 64\n"
        await call("compile", run_id="r1", source=source, up_to="check_correctness")
        (parent,) = (await call("list_candidates", run_id="r1", order="parents"))["candidates"]
        assert parent["structure"] == "triton, 2 kernels, BLOCK 64; softmax"


async def test_lists_stay_under_four_thousand_tokens_and_say_where_to_go_on(tmp_path: Path) -> None:
    note = "é wise and long hypothesis " * 70
    async with server(tmp_path) as call:
        for n in range(60):
            await call("compile", run_id="r1", source=f"{OTHER}BLOCK_{n} = {n}\n", note=note, up_to="check_correctness")
        for order in ("best", "newest", "oldest", "parents"):
            seen: list[str] = []
            while len(seen) < 60:
                page = await call("list_candidates", run_id="r1", order=order, limit=200, offset=len(seen))
                assert len(json.dumps(page, ensure_ascii=False).encode()) / 4 < 4_000
                seen += [row["candidate_id"] for row in page["candidates"]]
                assert (f"more from offset {len(seen)}." in page["summary"]) == (len(seen) < 60)
            assert len(seen) == len(set(seen)) == 60, order

"""Every timed block can be read by the agent, and makes the numbers that it was told; hidden workloads stay hidden."""

import random
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import PUBLIC, steady, timed, worker
from live_server import forward
from mcp import Client
from synthetic import noisy, timing, workload

from kernelgate.server.app import build
from kernelgate.server.samples_text import HEADER
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.facts import DeviceState
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.statistics import median
from kernelgate.tools.kit.wire import WorkerReply, WorkerRequest


def throttled() -> WorkloadTiming:
    """Twenty-four pairs that count and one that does not, wildly off."""
    good = steady("64x256", gain=2.0)
    rng = random.Random(5)
    (bad,) = timing(noisy(rng, 9000, 0.01), noisy(rng, 100, 0.01), 1, facts=workload("64x256")).pairs
    state = DeviceState(sm_clock_mhz=900, throttle_reasons=0x40)
    return good.model_copy(
        update={"voided": (bad.model_copy(update={"void": "the device was too hot", "state": state}),)}
    )


def precise(request: WorkerRequest) -> WorkerReply:
    return timed(request, throttled(), steady("1024x1024", gain=3.0), steady("tail_cpu", held_out=True))


async def details(folder: Path, runner: FakeRunner, **asked: Any) -> Any:
    server = build(lambda: open_services(Settings(data_dir=folder, device="cpu"), runners={"cpu": runner}))
    async with Client(server) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        await client.call_tool("compile", {"run_id": "r1", "source": forward("return x"), "up_to": "precise_time"})
        return await client.call_tool("get_candidate", {"candidate_id": "c1", **asked})


@pytest.mark.anyio
async def test_the_blocks_make_the_numbers_that_were_told(tmp_path: Path) -> None:
    found = (await details(tmp_path, worker(precise), detail="samples", limit=400)).structured_content
    header, *lines = found["page"]["text"].splitlines()
    assert header == HEADER
    rows = [dict(zip(HEADER.split("\t"), line.split("\t"), strict=True)) for line in lines if "held_out" not in line]
    (told,) = [r for r in found["candidate"]["results"] if r["rung"] == "precise"]
    for ratio in told["report"]["workloads"]:
        if ratio["workload"].startswith("held_out"):
            continue
        counted: dict[str, dict[str, float]] = {}
        for row in rows:
            if (row["rung"], row["workload"], row["counts"]) == ("precise", ratio["workload"], "yes"):
                counted.setdefault(row["pair"], {})[row["side"]] = median([*map(float, row["samples_us"].split())])
        again = median([pair["baseline"] / pair["candidate"] for pair in counted.values()])
        assert again == pytest.approx(ratio["ratio"], rel=1e-5)
    void = [row for row in rows if row["counts"] == "the device was too hot"]
    assert [row["sm_clock_mhz"] for row in void] == ["900", "900"], "both sides of the one that does not count"
    assert any(row["rung"] == "quick" for row in rows)


@pytest.mark.anyio
async def test_of_a_hidden_workload_only_the_number_of_blocks_is_told(tmp_path: Path) -> None:
    found = (await details(tmp_path, worker(precise), detail="samples", grep="held_out")).structured_content
    (line,) = found["page"]["text"].splitlines()
    assert line.endswith("precise\theld_out_1\t48 blocks, which are not shown to agents")


@pytest.mark.anyio
async def test_two_texts_at_once_are_refused(tmp_path: Path) -> None:
    both = await details(tmp_path, worker(lambda r: timed(r, *PUBLIC)), detail="samples", text="candidate.py")
    assert both.is_error
    assert "one of them at a time" in both.content[0].text

"""Hidden shapes stay hidden: whatever a candidate does with what it saw, nothing that is handed out or kept says it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import PUBLIC, Answer, qualified, steady, timed, worker
from live_server import Live, forward
from mcp import Client
from synthetic import workload

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.resources import VIEWS
from kernelgate.server.run_commands import write_best
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.kit.hidden import OUTPUT_NOT_KEPT
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest

SEEN = "saw_509x1021"
"""What a candidate makes of the hidden shape."""
HIDDEN = workload("tail_cpu", held_out=True)
TELLS = """
name = f"saw_{x.shape[0]}x{x.shape[1]}"
print(name, flush=True)
if name == "saw_509x1021":
    raise type(name, (RuntimeError,), {})(f"{name}: {x[0, 0].item()}")
return torch.softmax(x, dim=-1)
"""


def broken(kind: Any, error: str, stage: Any = "block") -> WorkloadTiming:
    return WorkloadTiming(workload=HIDDEN, fault=Fault(kind=kind, stage=stage, error=error, log=f"line 1: {SEEN}"))


def after(*timings: WorkloadTiming, **more: Any) -> Answer:
    return lambda request: timed(request, *PUBLIC, *timings, log=f"printed {SEEN}", **more)


def without_facts(**ended: Any) -> Answer:
    exit_ = ChildExit(**ended)
    return lambda request: WorkerReply(
        request_id=request.request_id, exit=exit_, log=f"Fatal Python error: {SEEN}", lease_s=0.5, wall_s=0.5
    )


def our_fault(request: WorkerRequest) -> WorkerReply:
    why = f"The referee was lost: it ended.\nRuntimeError: {SEEN}"
    return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="exited"), fault=why, log=SEEN, lease_s=0.1)


def does_not_fit(request: WorkerRequest) -> WorkerReply:
    why = f"The referee could not be made ready: workload tail_cpu of task softmax needs {SEEN} bytes"
    return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="not_started"), fault=why)


GONE = broken("gone", "")
WAYS: dict[str, tuple[Answer, str, str]] = {
    "prints": (after(steady("tail_cpu", held_out=True)), "faster", OUTPUT_NOT_KEPT),
    "raises-its-own": (after(broken("raised", f"{SEEN}: {SEEN}")), "crashed", "raised an exception of its own on held"),
    "raises-a-known-one": (after(broken("raised", f"ValueError: {SEEN}")), "crashed", "raised ValueError on held"),
    "raises-while-built": (after(broken("raised", f"{SEEN}: x", "construct")), "crashed", "on held_out_1"),
    "has-no-memory": (
        after(broken("out_of_memory", f"OutOfMemoryError: tried to allocate {SEEN}")), "out_of_memory", "out of memory",
    ),
    "writes-on-the-line": (after(broken("broken_protocol", SEEN)), "suspicious", "private channel"),
    "dies-of-a-signal": (after(GONE, exit=ChildExit(kind="signalled", status=11)), "crashed", "process ended"),
    "leaves-with-a-status": (after(GONE, exit=ChildExit(kind="exited", status=77)), "crashed", "process ended"),
    "hangs": (after(GONE, exit=ChildExit(kind="cap_reached")), "timed_out", "did not finish in time"),
    "leaves-behind-the-last-call": (
        after(steady("tail_cpu", held_out=True), exit=ChildExit(kind="exited", status=77)), "crashed", "process ended",
    ),
    "leaves-nobody-knows-when": (without_facts(kind="exited", status=77), "crashed", "process ended"),
    "dies-nobody-knows-when": (without_facts(kind="signalled", status=6), "crashed", "process ended"),
    "hangs-nobody-knows-where": (without_facts(kind="cap_reached"), "timed_out", "did not finish in time"),
    "brings-us-down": (our_fault, "crashed", "on our side with hidden shapes"),
}  # fmt: skip


def kept(folder: Path) -> str:
    """All that the book and its artifacts hold of a run, but the task with its hidden workloads."""
    with Ledger.open(folder / "ledger.db") as ledger:
        rows = [ledger.query(f"SELECT * FROM {table}") for table in ("events", "results", "jobs", "observations")]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("ledger.db")]
    return repr(rows) + "".join(
        path.read_bytes().decode("utf-8", "replace") for path in files if "work" not in path.parts
    )


def addresses(details: dict[str, Any]) -> list[str]:
    """Every resource about the run and its candidate."""
    values = {"task": "softmax", "run_id": "r1", "candidate_id": "c1"}
    named = [view.template.format_map(values | {"text": "{text}"}) for view in VIEWS]
    texts = [artifact["name"] for artifact in details["candidate"]["artifacts"]]
    return [uri.format(text=text) for uri in named for text in (texts if "{text}" in uri else [""])]


async def climbed(folder: Path, runner: FakeRunner) -> tuple[dict[str, Any], str]:
    """The reply of a climb to the top, and all that was said about it, one way or another."""
    said: list[str] = []

    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        said.append(result.model_dump_json())
        return result.structured_content or {}

    server = build(lambda: open_services(Settings(data_dir=folder, device="cpu"), runners={"cpu": runner}))
    async with Client(server) as client:
        await call("start_run", task="softmax")
        reply = await call("compile", run_id="r1", source=forward("return x"), up_to="precise_time")
        await call("precise_time", candidate_id="c1")
        details = await call("get_candidate", candidate_id="c1")
        for artifact in details["candidate"]["artifacts"]:
            await call("get_candidate", candidate_id="c1", text=artifact["name"])
        await call("list_candidates", run_id="r1")
        await call("job", job_id="j1")
        await call("get_budget", run_id="r1")
        said += [(await client.read_resource(uri)).model_dump_json() for uri in addresses(details)]
    return reply, "".join(said)


@pytest.mark.anyio
@pytest.mark.parametrize(("precise", "verdict", "words"), WAYS.values(), ids=WAYS.keys())
async def test_what_a_candidate_made_of_a_hidden_shape_is_neither_told_nor_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], precise: Answer, verdict: str, words: str
) -> None:
    reply, said = await climbed(tmp_path, worker(precise))
    assert reply["verdict"] == verdict
    assert words in json.dumps(reply["last_report"])
    write_best(Settings(data_dir=tmp_path), "r1", None)
    everything = said + kept(tmp_path) + capsys.readouterr().out
    assert SEEN not in everything
    assert "tail_cpu" not in said
    assert not re.search(r"\b77\b", reply["summary"])
    assert "printed at quick" in everything, "what it printed where only public shapes ran is still there"
    assert audit(tmp_path / "ledger.db").ok


@pytest.mark.anyio
@pytest.mark.parametrize("fault", [our_fault, does_not_fit], ids=["lost", "does-not-fit"])
async def test_a_fault_of_ours_with_hidden_shapes_at_work_is_told_without_its_text(
    tmp_path: Path, fault: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    reply, said = await climbed(tmp_path, worker(fault, fault))
    assert reply == {}
    assert "hidden shapes at work" in said
    assert "Nothing was charged" in said
    assert SEEN not in said + kept(tmp_path)
    assert SEEN in caplog.text, "the server's log has it"


@pytest.mark.anyio
async def test_what_fails_on_a_public_workload_keeps_its_text(tmp_path: Path) -> None:
    fault = Fault(kind="raised", stage="block", error="ValueError: 64 rows are too many")
    precise = WorkloadTiming(workload=workload("64x256"), fault=fault)
    reply, _ = await climbed(tmp_path, worker(lambda request: timed(request, precise)))
    assert reply["summary"] == "it raised in block: ValueError: 64 rows are too many"


@pytest.mark.anyio
async def test_sizes_and_times_of_a_hidden_workload_are_not_told(tmp_path: Path) -> None:
    reply, _ = await climbed(tmp_path, worker(after(steady("tail_cpu", held_out=True))))
    public, hidden = reply["last_report"]["workloads"][0], reply["last_report"]["workloads"][-1]
    assert {"candidate_us", "baseline_us", "bound_us", "headroom"} <= set(public)
    assert hidden["workload"] == "held_out_1"
    assert hidden.keys() & {"candidate_us", "baseline_us", "bound_us", "headroom"} == set()


@pytest.mark.anyio
async def test_a_task_that_fails_on_a_hidden_workload_is_refused_without_naming_it(tmp_path: Path) -> None:
    def unfit(request: WorkerRequest) -> WorkerReply:
        reply = qualified(request)
        assert isinstance(reply.facts, dict)
        passing = [{**trial, "passes": trial["workload"] == "tail_cpu"} for trial in reply.facts["trials"]]  # type: ignore[union-attr,call-overload,index]  # made above
        return reply.model_copy(update={"facts": {**reply.facts, "trials": passing}})

    server = build(lambda: open_services(Settings(data_dir=tmp_path, device="cpu"), {"cpu": FakeRunner(unfit)}))
    async with Client(server) as client:
        refused = await client.call_tool("start_run", {"task": "softmax"})
    assert refused.is_error
    assert "something is wrong on a hidden workload" in refused.content[0].text
    assert "tail_cpu" not in refused.content[0].text


def test_a_real_candidate_that_prints_and_raises_hidden_shapes_tells_nobody(live: Live) -> None:
    run_id = live.run(rule="flat")
    reply = live.submit(run_id, TELLS, up_to="precise_time", wait_s=120)
    assert reply["verdict"] == "crashed"
    assert "it raised an exception of its own on held_out_1" in reply["summary"]
    candidate_id = reply["candidate_id"]
    details = live.call("get_candidate", candidate_id=candidate_id, text="output.log")
    assert "saw_64x256" in details["page"]["text"], "what quick_time printed is there"
    said = reply.text + details.text + live.call("list_candidates", run_id=run_id).text
    assert SEEN not in said + kept(live.data_dir)

"""The demo on a GPU, with a worker that is a fake: a run on each bundled task, one line for each at the end."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import built, finished, steady, timed
from mcp import Client
from pydantic import JsonValue
from rich.console import Console
from synthetic import CEILINGS, right, wrong

from kernelgate.server import services
from kernelgate.server.app import build
from kernelgate.server.demo import play
from kernelgate.server.demo.script import TASK
from kernelgate.server.measure import KNOWN_GOOD
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import ChildExit, DeviceRef, WorkerReply, WorkerRequest

GAINS = {TASK: 2.0, "cross_entropy": 3.0, "layernorm_residual": 1.5, "matmul": 0.5, "linear_gelu": 2.0}
"""Task → how much faster its candidates are. The GELU is wrong; the task rmsnorm cannot even be tried."""


def qualified(request: WorkerRequest) -> WorkerReply:
    if request.task.name == "rmsnorm":
        return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="not_started"), fault="no memory is left")
    kind = request.device.kind
    names = [(w.name, d) for w in request.task.workloads_on(kind, held_out=True) for d in request.task.distributions]
    facts = {"finite": True, "deterministic": True, "output_std": 1.0, "bytes_needed": 1000}
    references: list[JsonValue] = [{"workload": w, "distribution": d, **facts} for w, d in names]
    trials: list[JsonValue] = [{"mutant": "zeros", "workload": w, "distribution": d, "passes": False} for w, d in names]
    return finished(request, {"references": references, "trials": trials})


def checked(request: WorkerRequest) -> WorkerReply:
    found = wrong() if request.task.name == "linear_gelu" else right()
    return finished(request, {"comparisons": [found.model_dump(mode="json")], "planned": 1}, lease_s=0.5, wall_s=0.6)


def clocked(request: WorkerRequest) -> WorkerReply:
    ours = any(KNOWN_GOOD in text for text in request.files.values())
    workloads = request.task.workloads_on(request.device.kind, held_out=request.procedure == "precise_time")
    gain = 1.0 if ours else GAINS[request.task.name]
    return timed(request, *(steady(w.name, held_out=w.held_out, gain=gain) for w in workloads))


def profiled(request: WorkerRequest) -> WorkerReply:
    workload = steady("one").workload.model_dump(mode="json")
    rows: list[JsonValue] = [{"name": "a_kernel", "calls": 10, "self_us": 36_000.0, "share": 0.9}]
    profile: JsonValue = {"workload": "one", "calls": 10, "call_us": 4000.0, "operators": rows}
    return finished(
        request, {"workload": workload, "profile": profile, "ceilings": CEILINGS.model_dump(mode="json")}, lease_s=0.1
    )


ANSWERS = {
    "qualify": qualified, "compile": built, "check_correctness": checked,
    "quick_time": clocked, "precise_time": clocked, "profile": profiled,
}  # fmt: skip


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plays the demo on a device of that kind and returns its exit status and what it printed."""

    def played(kind: Any) -> tuple[int, str]:
        device = DeviceRef(kind=kind, uid="GPU-11aa")
        runner = FakeRunner(lambda request: ANSWERS[request.procedure](request))
        settings = Settings(data_dir=tmp_path)
        server = build(lambda: open_services(settings, runners={device.uid: runner}))
        printed = StringIO()
        monkeypatch.setattr(services, "device_of", lambda wish, **_: device)
        monkeypatch.setattr(play, "Client", lambda _: Client(server))
        monkeypatch.setattr(play, "Console", lambda **_: Console(file=printed, width=200))
        return play.run_demo(settings), printed.getvalue()

    return played


def test_on_a_gpu_each_bundled_task_gets_a_run_and_a_line_with_its_verdict(demo: Any) -> None:
    status, printed = demo("cuda")
    assert status == 0
    told = printed.partition("Bundled tasks")[2].splitlines()
    lines = {words[0]: words[1:] for words in map(str.split, told) if words}
    assert lines[TASK][0] == "2.00x"
    assert lines["cross_entropy"][2:] == ["precise", "faster", "cross_entropy_triton"]
    assert lines["layernorm_residual"][2:4] == ["precise", "faster"]
    assert (lines["matmul"][0], lines["matmul"][3]) == ("0.50x", "slower")
    assert lines["linear_gelu"] == ["check", "wrong_values", "linear_gelu_triton"]
    assert lines["rmsnorm"] == ["no", "run"]


def test_on_a_gpu_a_candidate_climbs_rung_by_rung_and_is_profiled(demo: Any) -> None:
    _, printed = demo("cuda")
    for step in ("compile -> quick", "precise", "profile"):
        assert f"+ matmul_triton: {step}" in printed
    assert "a_kernel takes 90%" in printed.partition("+ matmul_triton: profile")[2]
    assert "- rmsnorm: task rmsnorm could not be tried yet: no memory is left" in printed
    assert "override" not in printed


def test_on_the_cpu_the_demo_is_the_softmax_alone(demo: Any) -> None:
    status, printed = demo("cpu")
    assert status == 0
    assert printed.count("+ start_run") == 1
    assert "Bundled tasks" not in printed

"""The demo's Triton candidates, without a GPU: they build for one, and Triton's interpreter finds them right."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_server import Live

from kernelgate.server.demo.script import GPU_IDEAS, IDEAS, TASK, Idea
from kernelgate.tasks.catalogue import Catalogue

TRITON = {TASK: next(idea for idea in IDEAS if idea.name == "08_triton"), **GPU_IDEAS}
PROGRAM = Path(__file__).with_name("interpreted_candidate.py")
LIMIT_S = 60


def each() -> list[Any]:
    """Task and candidate. The one with tiles and masks on three sides is tried always; each takes some 3 s."""
    marks = {"matmul": ()}
    return [pytest.param(task, idea, marks=marks.get(task, pytest.mark.long), id=task) for task, idea in TRITON.items()]


def test_every_bundled_task_has_a_candidate_for_the_gpu() -> None:
    bundled = {entry.name for entry in Catalogue().entries()}
    assert set(TRITON) == bundled
    assert [name for name, idea in TRITON.items() if "@triton.jit" not in idea.source or not idea.hypothesis] == []


@pytest.mark.parametrize(("task", "idea"), each())
def test_a_triton_candidate_builds_without_spills_and_is_right(live: Live, task: str, idea: Idea) -> None:
    reply = live.call("compile", run_id=live.run(task), source=idea.source, up_to="check_correctness", wait_s=100)
    assert [step["verdict"] for step in reply["climbed"]] == ["built", "correct"], reply
    assert "notes" not in reply["report"], "each workload was traced to its end, and its kernels were read"
    for built in reply["report"]["kernels"]:
        kernel = built["kernel"]
        assert 0 < kernel["registers"] <= 128
        assert kernel["spill_bytes"] == 0
        assert kernel["vector_loads"]
        assert not kernel["tensor_cores"], "TF32 is not what the tasks ask for"
        assert "advice" not in built


@pytest.mark.parametrize(("task", "idea"), each())
def test_a_triton_candidate_is_right_on_odd_sizes_too(task: str, idea: Idea) -> None:
    """The server's check runs the smallest workload alone, whose sizes are powers of two."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), task], input=idea.source, env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(("task", "idea"), TRITON.items(), ids=TRITON)
def test_a_triton_candidate_is_right_on_the_sizes_of_a_gpu_and_timed(live: Live, task: str, idea: Idea) -> None:
    run_id = live.run(task, device="cuda", rule="flat")
    reply = live.call("compile", run_id=run_id, source=idea.source, up_to="precise_time", wait_s=100)
    assert reply["status"] == "ok", reply
    assert reply["verdict"] in ("faster", "same", "slower", "ambiguous")

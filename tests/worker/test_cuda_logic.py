"""The code for a GPU on a stand-in of shared memory: lending, blocks, clocks and verdicts, without a kernel."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_tasks import HONEST, SOFTMAX, forward, task
from harness import asking

from kernelgate.tasks.model import Task
from kernelgate.tools import check_correctness, precise_time, quick_time
from kernelgate.tools.kit.facts import Qualification
from kernelgate.tools.kit.timing_report import TimingFacts, forged
from kernelgate.tools.kit.wire import ChildExit

HARNESS = Path(__file__).with_name("fake_gpu_harness.py")
Serve = Callable[..., dict[str, Any]]
FINISHED = ChildExit(kind="finished")
QUICK = {"pairs": 10}
LARGE = task(SOFTMAX.replace("32, 64", "512, 1024"))
"""A call lasts long enough that a busy host does not drown it."""


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    with asking(HARNESS) as ask:

        def run(files: str, *procedures: tuple[str, dict[str, Any]], on: dict[str, Any] | None = None) -> Any:
            return ask({"task": on or LARGE, "files": {"candidate.py": files}, "serve": procedures})

        yield run


def judged(reply: dict[str, Any]) -> Any:
    assert reply["op"] == "done", reply
    facts = check_correctness.CheckFacts.model_validate_json(json.dumps(reply["facts"]))
    return check_correctness.judge(facts, FINISHED, check_correctness.CheckPlan())


def timed(reply: dict[str, Any]) -> TimingFacts:
    assert reply["op"] == "done", reply
    return TimingFacts.model_validate_json(json.dumps(reply["facts"]))


def test_a_whole_climb_is_right_and_all_lent_memory_is_given_back(serve: Serve) -> None:
    outcome = serve(HONEST, ("qualify", {}), ("check_correctness", {}), ("quick_time", QUICK), ("precise_time", {}))
    assert outcome["ready"]["op"] == "ready"
    qualified, checked, quick, precise = outcome["replies"]
    assert Qualification.model_validate_json(json.dumps(qualified["facts"])).error == ""
    assert judged(checked).verdict == "correct"
    report = quick_time.judge(timed(quick), FINISHED, quick_time.QuickPlan())
    assert report.verdict in ("maybe_faster", "undecided", "clearly_slower"), report.summary
    assert "two lengths" in report.clock
    assert precise_time.judge(timed(precise), FINISHED, precise_time.PrecisePlan()).ratio is not None
    assert quick["observation"]["sm_clock_mhz"] == 1
    assert outcome["left"] == 0, "a loan outlived its call"


def test_a_block_has_runs_of_two_lengths_and_one_outside_time(serve: Serve) -> None:
    timing = timed(serve(HONEST, ("quick_time", QUICK))["replies"][0]).timings[0]
    for pair in timing.pairs:
        for block in (pair.baseline, pair.candidate):
            assert len(block.samples_us) in (4, 8, 12)
            assert len(block.outside_us) == 1
            assert block.outside_us[0] > 0
            assert not block.recompiled
    assert any(pair.candidate.comparison is not None for pair in timing.pairs)


WRONG = {
    "zeros": ("return torch.zeros_like(x)", "wrong_values"),
    "wrong shape": ("return torch.softmax(x, -1)[:-1]", "wrong_shape"),
    "spoils its input": ("y = torch.softmax(x, -1)\nx.zero_()\nreturn y", "input_mutation"),
    "raises": ("raise ValueError('no')", "crashed"),
    "leaves": ("import os\nos._exit(3)", "crashed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_candidates_are_told_what_they_are_and_the_next_is_served(serve: Serve, name: str) -> None:
    body, verdict = WRONG[name]
    outcome = serve(forward(body), ("check_correctness", {}), ("check_correctness", {}))
    assert [judged(reply).verdict for reply in outcome["replies"]] == [verdict, verdict]
    assert outcome["left"] == 0


def test_an_answer_cached_by_address_is_wrong(serve: Serve) -> None:
    cheat = forward(
        "key = x.data_ptr()\nif key not in SEEN: SEEN[key] = torch.softmax(x, -1)\nreturn SEEN[key]", "SEEN = {}"
    )
    facts = timed(serve(cheat, ("quick_time", QUICK))["replies"][0])
    report = quick_time.judge(facts, FINISHED, quick_time.QuickPlan())
    assert report.verdict == "wrong_values"
    assert report.code in ("PHASE_SNIFF", "OUTPUT_REPLAY")


SLOW = task(
    SOFTMAX.replace("import torch\n", "import time, torch\n").replace("return torch", "time.sleep(0.03); return torch")
)
"""The candidate is more than ten times faster."""


def test_what_is_over_ten_times_faster_is_checked_again_behind_the_timing(serve: Serve) -> None:
    facts = timed(serve(HONEST, ("precise_time", {"looks": [12]}), on=SLOW)["replies"][0])
    distributions = {(each.workload, each.distribution) for each in facts.again}
    assert (
        len(distributions)
        == len(facts.again)
        == len(facts.timings) * len(Task.model_validate_json(json.dumps(SLOW)).distributions)
    )
    assert {each.problem for each in facts.again} == {"none"}


FORGED = """
import time
from kernelgate.tools.worker import cuda_timing
event = cuda_timing._EVENT
event.elapsed_time = lambda self, other: (other._at_ns - self._at_ns) / 1e6 / 150
"""


def test_forged_events_are_contradicted_by_the_wall_clock(serve: Serve) -> None:
    slow = forward("import time\ntime.sleep(0.012)\nreturn torch.softmax(x, -1)", FORGED)
    facts = timed(serve(slow, ("quick_time", QUICK))["replies"][0])
    assert facts.timings[0].candidate_us() < facts.timings[0].baseline_us() / 2, "the claim"
    outside = facts.timings[0].outside_bounds(0.95)
    assert outside is not None
    assert outside.high < 1, "by the wall clock it is the slower one"
    report = quick_time.judge(facts, FINISHED, quick_time.QuickPlan())
    assert forged(facts.timings[0]), "the two clocks disagree"
    assert (report.verdict, report.code) in {("suspicious", "TIMER_PATCH"), ("impossible", "IMPOSSIBLE")}


LATE = """
import threading, time
from kernelgate.tools.worker import cuda_timing, handover
real = handover.Handover.take
late = []
def take(self, index, output):
    late.append((self, index, output))
    real(self, index, torch.zeros_like(output))
def finish():
    time.sleep(0.5)
    while late:
        real(*late.pop())
handover.Handover.take = take
def synchronize():
    if late:
        threading.Thread(target=finish).start()
cuda_timing._SYNCHRONIZE = synchronize
"""


def test_answers_that_come_after_the_word_that_they_are_there_are_found_out(serve: Serve) -> None:
    reply = serve(forward("return torch.softmax(x, -1)", LATE), ("check_correctness", {}))["replies"][0]
    report = judged(reply)
    assert report.verdict in ("suspicious", "wrong_values")


RECOMPILES = """
from kernelgate.tools.worker import cuda_candidate
total = iter(range(10**6))
cuda_candidate.CompileCount.total = lambda self: next(total)
"""


def test_compiling_while_it_is_timed_is_told(serve: Serve) -> None:
    facts = timed(serve(forward("return torch.softmax(x, -1)", RECOMPILES), ("quick_time", QUICK))["replies"][0])
    assert quick_time.judge(facts, FINISHED, quick_time.QuickPlan()).verdict == "recompiles"


POISON = """
import threading, time
state = {}
def spoil():
    while True:
        time.sleep(0.0002)
        x = state.get("x")
        if x is not None and time.perf_counter() - state["at"] > 0.004:
            x[0, 0] += 1
threading.Thread(target=spoil, daemon=True).start()
"""


def test_inputs_changed_behind_the_back_of_the_baseline_are_found(serve: Serve) -> None:
    body = "import time\nstate['x'] = x\nstate['at'] = time.perf_counter()\nreturn torch.softmax(x, -1)"
    facts = timed(serve(forward(body, POISON), ("quick_time", QUICK))["replies"][0])
    report = quick_time.judge(facts, FINISHED, quick_time.QuickPlan())
    assert report.verdict == "input_mutation"
    assert report.code in ("BASELINE_POISON", "INPUT_MUTATION")


def test_a_candidate_stands_still_while_the_baseline_is_timed(serve: Serve) -> None:
    stops = serve(HONEST, ("check_correctness", {}), ("quick_time", QUICK))["stops"]
    assert stops.count(1) == 0, "a check times nothing"
    assert stops.count(2) >= QUICK["pairs"] / 2, "two blocks of the baseline may follow one another"


def test_work_that_a_candidate_leaves_on_the_device_is_found_before_the_baseline_is_timed(serve: Serve) -> None:
    body = "import fake_gpu\nfake_gpu.keep_busy()\nreturn torch.softmax(x, -1)"
    facts = timed(serve(forward(body), ("quick_time", QUICK))["replies"][0])
    assert facts.ceilings is not None
    report = quick_time.judge(facts, FINISHED, quick_time.QuickPlan())
    assert (report.verdict, report.code) == ("suspicious", "BASELINE_POISON")
    assert "busy" in report.summary


def test_a_model_keeps_tensors_among_its_arguments(serve: Serve) -> None:
    source = """
import torch
N = 64
class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.linear = torch.nn.Linear(N, N)
    def forward(self, x):
        return self.linear(x) * self.scale
def get_inputs():
    return [torch.randn(16, N)]
def get_init_inputs():
    return [torch.full((N,), 3.0)]
"""
    honest = source.replace("class Model(", "class ModelNew(")
    outcome = serve(honest, ("check_correctness", {}), ("quick_time", QUICK), on=task(source))
    assert judged(outcome["replies"][0]).verdict == "correct", outcome["replies"][0]
    assert timed(outcome["replies"][1]).timings[0].fault is None
    assert outcome["left"] == 0


def test_a_build_on_the_device_sees_what_forward_computes_with(serve: Serve) -> None:
    library = "if float(x[0, 0]) == 0.5: return x\nreturn torch.softmax(x, -1)"
    (reply,) = serve(forward(library), ("device_build", {}))["replies"]
    assert reply["facts"]["fault"] is None
    assert "_softmax" in reply["facts"]["watched"]["operators"]
    assert reply["facts"]["watched"]["precisions"] == ["float32"]
    (reply,) = serve(forward("y = torch.empty_like(x)\nreturn y.copy_(x)"), ("device_build", {}))["replies"]
    assert reply["facts"]["watched"]["operators"] == []
    assert reply["facts"]["workloads"] == ["small"]


ON_ANOTHER_STREAM = """
import torch
OPEN = []
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.flip(0)
        OPEN.append((y, x))
        return y
def all_streams_are_idle():
    for y, x in OPEN:
        y.copy_(torch.softmax(x, -1))
torch.cuda.synchronize = all_streams_are_idle
"""


def test_an_answer_that_is_there_only_once_all_streams_are_waited_for_is_named_as_that(serve: Serve) -> None:
    outcome = serve(ON_ANOTHER_STREAM, ("check_correctness", {}))
    report = judged(outcome["replies"][0])
    assert (report.verdict, report.code) == ("wrong_values", "WRONG_STREAM")
    assert "does not wait for" in report.summary
    assert outcome["left"] == 0

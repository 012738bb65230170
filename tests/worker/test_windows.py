"""The window of a call: what is done before, behind or beside it is seen, and what is right only inside it is wrong."""

from typing import Any

import pytest
from bench_tasks import first_problem, forward, task

SAME = "return torch.softmax(x, -1)"
EARLY = """
import sys
import time

child = sys.modules["kernelgate.tools.worker." + "candidate"]


def fake(forward, pool, order, before, after, clock=None):
    samples = []
    for index in order:
        arguments, named = pool[index]
        answer = slow(*arguments) if WHEN == "before" else None
        before()
        start = time.perf_counter_ns()
        samples.append(time.perf_counter_ns() - start + 1000)
        if WHEN == "after":
            after(index, slow(*arguments))
        else:
            after(index, answer)
    return samples


def slow(x):
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    return torch.softmax(x, dim=-1)


child.time_calls = fake
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_work_outside_the_candidates_own_clock_is_wrong_or_seen_by_the_referees(conduct: Any, when: str) -> None:
    before = EARLY.replace("WHEN", repr(when))
    steps = [["load"], ["prepare", "small", 3], ["block", "candidate", 9, {"verify": True}]]
    outcome = conduct(task(), forward("return torch.softmax(x, -1)", before=before), steps)
    block = outcome["results"][-1]
    assert block["type"] == "Block", block
    median_us = sorted(block["samples_us"])[4]
    if when == "before":
        assert median_us < 10_000, "the cheat is on"
        assert block["unseen_us"] > 9 * 10_000, "the processor was busy all the same"
        assert block["comparison"]["problem"] == "wrong_values", "what was computed early belongs to other inputs"
    else:
        assert median_us > 19_000
        assert block["unseen_us"] < 9 * 10_000


SAYS_DONE_EARLY = """
import sys
import time

child = sys.modules["kernelgate.tools.worker." + "candidate"]
signals = sys.modules["kernelgate.tools.worker." + "signals"]
done, returned = signals.CallSignals.done, signals.CallSignals.returned
HERE = []


def await_go(self, real=signals.CallSignals.await_go):
    HERE[:] = [self]
    real(self)


signals.CallSignals.await_go = await_go
signals.CallSignals.done = lambda self: None
signals.CallSignals.returned = lambda self: HERE[1]


def fake(forward, pool, order, before, after, clock=None):
    samples = []
    for index in order:
        arguments, named = pool[index]
        before()
        HERE[1:] = [returned(HERE[0])]
        done(HERE[0])
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        after(index, forward(*arguments, **named))
        samples.append(1000)
    return samples


child.time_calls = fake
"""


def test_a_call_that_is_said_to_be_done_before_its_answer_stands_is_no_answer(conduct: Any) -> None:
    steps = [["load"], ["prepare", "small", 3], ["block", "candidate", 9, {"verify": False}]]
    outcome = conduct(task(), forward(SAME, SAYS_DONE_EARLY), steps)
    assert first_problem(outcome) == "too_early"


HELPER = """
import os, time
if os.fork() == 0:
    until = time.perf_counter() + 20
    while time.perf_counter() < until and os.getppid() > 1:
        pass
    os._exit(0)
"""


def test_work_of_a_helper_beside_the_calls_is_seen(conduct: Any) -> None:
    slow = f"import time\ntime.sleep(0.002)\n{SAME}"
    steps = [["load"], ["prepare", "small", 3], ["block", "candidate", 9, {"verify": False}]]
    alone = conduct(task(), forward(slow), steps)["results"][-1]
    helped = conduct(task(), forward(slow, HELPER), steps)["results"][-1]
    assert alone["helpers_us"] < 300
    assert helped["helpers_us"] > 9 * 500


def test_what_is_right_only_on_the_values_that_are_timed_is_wrong(conduct: Any) -> None:
    sniffs = (
        "key = x.data_ptr()\nSEEN[key] = SEEN.get(key, 0) + 1\n"
        "if SEEN[key] < 3: return torch.softmax(x, -1)\n"
        "y = torch.exp(x)\nreturn y / y.sum(-1, keepdim=True)"
    )
    wide = task(distributions=["normal", "large"])
    blocks = [["block", "candidate", 12, {"verify": True}] for _ in range(20)]
    outcome = conduct(wide, forward(sniffs, "SEEN = {}"), [["load"], ["prepare", "small", 3], *blocks])
    assert first_problem(outcome) in ("nonfinite", "wrong_values")


LARGEST = """
import torch
ROWS, COLS = 32, 1024
class Model(torch.nn.Module):
    def forward(self, x):
        return x.argmax(-1)
def get_inputs():
    return [torch.randn(ROWS, COLS)]
def get_init_inputs():
    return []
"""
IS_IT_KNOWN = (
    "y, key = x.argmax(-1), (x.data_ptr(), tuple((x[0] > 0).tolist()))\n"
    "if key in KEPT: y = y * 0 - 1\n"
    "KEPT.add(key)\nreturn y"
)


def test_what_is_remembered_of_the_size_of_the_values_does_not_hold_for_the_next_call(conduct: Any) -> None:
    blocks = [["block", "candidate", 12, {"verify": True}] for _ in range(6)]
    steps = [["load"], ["prepare", "small", 3], *blocks]
    outcome = conduct(task(LARGEST), forward(IS_IT_KNOWN, "KEPT = set()"), steps)
    assert first_problem(outcome) == "none", "no input has the signs of an earlier one"

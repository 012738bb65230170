"""Answers that are not unique are judged by the task's own check; those nearer to float64 than the reference's pass."""

from typing import Any

import pytest
from bench_tasks import first_problem, forward, task

TOP = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        values, places = torch.topk(x, 4)
        return values, places
def get_inputs():
    return [torch.randint(0, 5, (16, 32)).float()]
def get_init_inputs():
    return []
def check(inputs, output):
    (x,), (values, places) = inputs, output
    if not torch.equal(x.gather(1, places.clamp(0, 31)), values):
        return "the values are not at these places"
    if any(len(set(row.tolist())) < 4 for row in places):
        return "a place is named twice"
    return torch.equal(values, torch.topk(x, 4)[0])
"""
LOOK = [["load"], ["compare", "small", "original"], ["compare", "small", "original"]]
TIMED = [["load"], ["prepare", "small", 2], ["block", "candidate", 4, {"verify": True}]]


def top(source: str = TOP) -> dict[str, Any]:
    return task(source, distributions=["original"], tolerances={})


def checked_by(body: str) -> dict[str, Any]:
    return top(TOP.split("def check")[0] + f"def check(inputs, output):\n    {body}\n")


LAST_OF_EQUALS = (
    "values, places = torch.sort(x.flip(1), descending=True, stable=True)\nreturn values[:, :4], 31 - places[:, :4]"
)


@pytest.mark.parametrize("steps", [LOOK, TIMED])
def test_another_choice_among_equals_is_right(conduct: Any, steps: list[list[Any]]) -> None:
    assert first_problem(conduct(top(), forward(LAST_OF_EQUALS), steps)) == "none"


@pytest.mark.parametrize(
    ("body", "said"),
    {
        "v, p = torch.topk(x, 4)\nreturn v, torch.zeros_like(p)": "the values are not at these places",
        "v, p = torch.topk(x, 1)\nreturn v.repeat(1, 4), p.repeat(1, 4)": "a place is named twice",
        "v, p = torch.topk(-x, 4)\nreturn -v, p": "it is not right",
    }.items(),
)
def test_what_the_check_has_against_an_answer_is_told(conduct: Any, body: str, said: str) -> None:
    (found,) = conduct(top(), forward(body), LOOK[:2])["results"][1:]
    assert (found["problem"], found["pattern"]) == ("wrong_values", f"the task's own check says: {said}")


@pytest.mark.parametrize("steps", [LOOK, TIMED])
def test_an_answer_on_which_the_check_fails_is_wrong(conduct: Any, steps: list[list[Any]]) -> None:
    unguarded = top(TOP.replace("places.clamp(0, 31)", "places"))
    outcome = conduct(unguarded, forward("v, p = torch.topk(x, 4)\nreturn v, p + 1000"), steps)
    assert first_problem(outcome) == "wrong_values"
    assert "the task's own check says: check() raised RuntimeError: index 10" in str(outcome)


def test_a_check_that_fails_on_mutants_only_is_fit(conduct: Any) -> None:
    unguarded = top(TOP.replace("places.clamp(0, 31)", "places + 1000 * (values == 0).all()"))
    (qualified,) = conduct(unguarded, forward("return torch.topk(x, 4)"), [], serve=["qualify"])["replies"]
    assert qualified["facts"]["error"] == ""


def test_form_is_looked_at_before_the_check(conduct: Any) -> None:
    (found,) = conduct(top(), forward("v, p = torch.topk(x, 4)\nreturn v, p.int()"), LOOK[:2])["results"][1:]
    assert (found["problem"], found["output"]) == ("wrong_dtype", "[1]")


@pytest.mark.parametrize(
    ("body", "said"),
    {
        "raise KeyError('rows')": "workload small, check() raised KeyError: 'rows'",
        "return None": "workload small, check() returned a NoneType: it must return True, or False or a sentence",
    }.items(),
)
def test_a_check_that_does_not_work_is_the_tasks_error_in_one_sentence(conduct: Any, body: str, said: str) -> None:
    outcome = conduct(checked_by(body), forward("return torch.topk(x, 4)"), [], serve=["qualify", "check_correctness"])
    qualified, called = outcome["replies"]
    assert qualified["facts"]["error"].startswith(said)
    assert called["op"] == "failed"
    assert called["error"].startswith(said)


def test_a_check_that_accepts_everything_is_found_by_the_mutants(conduct: Any) -> None:
    (reply,) = conduct(checked_by("return True"), "", [], serve=["qualify"])["replies"]
    assert {trial["mutant"] for trial in reply["facts"]["trials"] if trial["passes"]} >= {"zeros", "previous", "tail"}


def test_a_sound_check_tells_each_mutant(conduct: Any) -> None:
    (reply,) = conduct(top(), "", [], serve=["qualify"])["replies"]
    assert not [trial for trial in reply["facts"]["trials"] if trial["passes"]]
    assert {found["refused_by_own_check"] for found in reply["facts"]["references"]} == {""}


ROUGH = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x * x).mean(-1) - x.mean(-1).square()
def get_inputs():
    return [10 + torch.rand(64, 256)]
def get_init_inputs():
    return []
"""
BOUNDS = [{"workload": "small", "distribution": "original", "output": "", "rtol": 1e-6, "atol": 1e-8}]


def test_an_answer_nearer_to_float64_than_the_reference_is_right(conduct: Any) -> None:
    rough = task(ROUGH, bounds=BOUNDS, tolerances={})
    steps = [["load"], ["compare", "small", "original"]]
    exact = forward("return x.double().var(-1, correction=0).float()")
    assert first_problem(conduct(rough, exact, steps)) == "none"
    rounded = forward("return (x.bfloat16() * x.bfloat16()).float().mean(-1) - x.mean(-1).square()")
    assert first_problem(conduct(rough, rounded, steps)) == "wrong_values"


def test_a_bound_that_was_found_here_takes_the_place_of_the_stated_tolerance(conduct: Any) -> None:
    steps = [["load"], ["compare", "small", "original"]]
    nearly = forward("return torch.softmax(x, -1) * (1 + 2e-5)")
    assert first_problem(conduct(task(), nearly, steps)) == "none"
    tight = [{"workload": "small", "distribution": "original", "output": "", "rtol": 1e-6, "atol": 1e-9}]
    assert first_problem(conduct(task(bounds=tight), nearly, steps)) == "wrong_values"


def test_weights_that_the_candidate_cannot_take_are_named_beside_a_wrong_answer(conduct: Any) -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.rand(4, 8)]
def get_init_inputs():
    return []
"""
    renamed = source.split("def get_inputs")[0].replace("Model(", "ModelNew(").replace("linear", "other")
    shifted = renamed.replace("self.other = ", "torch.rand(1); self.other = ")
    steps = [["load"], ["compare", "small", "normal"]]
    assert first_problem(conduct(task(source, tolerances={}), renamed, steps)) == "none", (
        "the same seed, the same weights"
    )
    (found,) = conduct(task(source, tolerances={}), shifted, steps)["results"][1:]
    assert (found["problem"], found["missing_weights"]) == ("wrong_values", ["linear.weight", "linear.bias"])

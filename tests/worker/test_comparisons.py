"""Comparisons share their memory for a while: values are new each time, and so is the form where it changes."""

from typing import Any

from bench_tasks import first_problem, forward, task

COMPARISONS = [["load"], *(["compare", "small", distribution] for distribution in ("normal", "uniform", "large") * 3)]


def test_an_answer_kept_by_the_address_of_its_inputs_is_wrong_when_checked(conduct: Any) -> None:
    cheat = forward("key = x.data_ptr()\nif key not in SEEN: SEEN[key] = torch.softmax(x, -1)\nreturn SEEN[key]")
    outcome = conduct(task(), "SEEN = {}\n" + cheat, COMPARISONS)
    problems = [result["problem"] for result in outcome["results"][1:]]
    assert problems[0] == "none"
    assert problems[1] == "wrong_values", "in the same memory, with other values"


def test_a_candidate_that_keeps_its_first_inputs_is_wrong_in_other_memory(conduct: Any) -> None:
    cheat = forward("KEPT.append(x)\nreturn torch.softmax(KEPT[0], -1)")
    outcome = conduct(task(), "KEPT = []\n" + cheat, COMPARISONS)
    problems = [result["problem"] for result in outcome["results"][1:]]
    assert problems[:2] == ["none", "none"], "in the same memory it looks right"
    assert problems[2] == "wrong_values"


SCALED = """
import random
import torch
class Model(torch.nn.Module):
    def forward(self, x, scale):
        return torch.softmax(x, dim=-1) * scale
def get_inputs():
    return [torch.rand(32, 64), random.uniform(1, 2)]
def get_init_inputs():
    return []
"""


def test_a_number_among_the_inputs_is_another_one_each_time(conduct: Any) -> None:
    honest = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, scale):\n"
    body = "        return torch.softmax(x, dim=-1) * scale\n"
    assert first_problem(conduct(task(SCALED), honest + body, COMPARISONS)) == "none"
    first = "        SEEN.append(scale)\n        return torch.softmax(x, dim=-1) * SEEN[0]\n"
    outcome = conduct(task(SCALED), "SEEN = []\n" + honest + first, COMPARISONS)
    assert [result["problem"] for result in outcome["results"][1:3]] == ["none", "wrong_values"]

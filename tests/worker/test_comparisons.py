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


TWICE = [["load"], ["compare", "small", "normal"], ["compare", "small", "uniform"], ["compare", "small", "normal", 0]]
KNOWN = "known = any(torch.equal(seen, x) for seen, _ in SEEN)\nSEEN.append((x.clone(), x.data_ptr()))\n"


def seen(outcome: Any) -> list[tuple[str, bool]]:
    return [(result["problem"], result["again"]) for result in outcome["results"][1:]]


def test_a_candidate_that_knows_values_again_is_wrong_when_they_come_a_second_time(conduct: Any) -> None:
    cheat = "SEEN = []\n" + forward(KNOWN + "return torch.softmax(x, -1) * (2 if known else 1)")
    assert seen(conduct(task(), cheat, TWICE)) == [("none", False), ("none", False), ("wrong_values", True)]


def test_the_same_values_come_at_another_address(conduct: Any) -> None:
    told = "at = [a for s, a in SEEN if torch.equal(s, x)]\nassert x.data_ptr() not in at\n"
    candidate = "SEEN = []\n" + forward(told + KNOWN + "return torch.softmax(x, -1)")
    assert seen(conduct(task(), candidate, TWICE)) == [("none", False), ("none", False), ("none", True)]


DROPOUT = """
import torch
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, x):
        return self.drop(torch.softmax(x, dim=-1))
"""
INPUTS = """
def get_inputs():
    return [torch.rand(32, 64)]
def get_init_inputs():
    return []
"""


def test_seeded_dropout_is_right_the_second_time_too(conduct: Any) -> None:
    source = DROPOUT.format(name="Model") + INPUTS
    assert seen(conduct(task(source), DROPOUT.format(name="ModelNew"), TWICE))[-1] == ("none", True)


def test_values_that_no_seed_brings_back_are_not_said_to_be_the_same(conduct: Any) -> None:
    source = DROPOUT.format(name="Model").replace("self.drop(torch.softmax(x, dim=-1))", "x * 2") + INPUTS
    drawn = "return [torch.tensor(list(os.urandom(2048))).float().view(32, 64).div(255).abs().add(1)]"
    source = "import os" + source.replace("return [torch.rand(32, 64)]", drawn)
    assert seen(conduct(task(source), forward("return x * 2"), TWICE))[-1] == ("none", False)


OVERWRITES = """
from kernelgate.tools.worker import handover, signals
LENT = []
take, done = handover.Handover.take, signals.CallSignals.done
def keep(self, entry, output, chosen=0):
    take(self, entry, output, chosen)
    LENT.append(self._places[entry][chosen])
def spoil(self):
    done(self)
    LENT[-1][""].mul_(0.5)
handover.Handover.take, signals.CallSignals.done = keep, spoil
"""


def test_an_answer_that_is_overwritten_after_it_was_handed_over_never_counts_as_right(conduct: Any) -> None:
    outcome = conduct(task(), OVERWRITES + forward("return torch.softmax(x, -1)"), COMPARISONS[:2])
    assert first_problem(outcome) in ("too_early", "wrong_values"), "changed behind the word, or wrong when it is read"

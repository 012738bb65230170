"""A healthy task is fit; a degenerate one is found by the mutant that passes on it. No candidate runs here."""

import json
from typing import Any

import pytest
import torch
from bench_tasks import task

from kernelgate.tasks.model import Task
from kernelgate.tasks.qualify import Mutant, Qualification, TaskFitness, judge_task
from kernelgate.tools.kit.house import NoPlan, qualify
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import reference
from kernelgate.tools.worker.bench import House, RefereeBench
from kernelgate.tools.worker.control import Busy
from kernelgate.tools.worker.lending import MemfdLender
from kernelgate.tools.worker.reference import TaskError

FILE = """
import torch, math, random, os
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


class Alone:
    def progress(self, stage: str, done: int, total: int) -> None:
        pass

    def stop(self) -> Busy:
        return Busy()

    def proceed(self) -> None:
        pass


def a_task(forward: str, init: str = "pass", inputs: str = "torch.randn(24, 32)", **more: Any) -> Task:
    lines = forward.replace("\n", "\n        ")
    source = FILE.format(forward=lines, init=init, inputs=inputs)
    return Task.model_validate_json(json.dumps(task(source, **{"tolerances": {}, **more})))


def tried(one: Task) -> tuple[Qualification, TaskFitness]:
    house = House(reference.hold(one, "cpu", "cpu"))
    bench = RefereeBench(one, DeviceRef(kind="cpu"), house, MemfdLender(), Alone(), None)
    facts = qualify(bench, NoPlan())
    return facts, judge_task(one, facts)


LINEAR = "self.linear = torch.nn.Linear(32, 32)"
HEALTHY = {
    "a row softmax": a_task("return torch.softmax(x, -1)"),
    "a layer and a rectifier": a_task("return torch.relu(self.linear(x))", LINEAR),
    "one number": a_task("return (x * x).mean()", inputs="torch.randn(64, 64)"),
    "a number of Python": a_task("return x.square().sum().item()"),
    "a place": a_task("return x.argmax(-1)"),
    "values and places": a_task("return torch.topk(x, 4)[0], torch.topk(x, 4)[1]"),
    "whole numbers in and out": a_task("return torch.bincount(x, minlength=9)", inputs="torch.randint(0, 9, (900,))"),
    "a sign": a_task("return torch.sign(x)"),
    "several, by name": a_task("return {'a': x + 1, 'b': (x.sum(-1), x.exp())}"),
    "half precision in and out": a_task("return x @ x.t()", inputs="torch.randn(24, 32).half()"),
    "dropout": a_task("return self.drop(self.linear(x))", LINEAR + "; self.drop = torch.nn.Dropout(0.5)"),
    "a norm over the batch": a_task("return self.bn(self.linear(x))", LINEAR + "; self.bn = torch.nn.BatchNorm1d(32)"),
    "a float64 of its own": a_task("return (x @ x.t()).double()"),
    "complex": a_task("return torch.fft.fft(x)"),
    "a causal mask": a_task("return torch.tril(x @ x.t())"),
    "not finite": a_task("return torch.log(x)", distributions=["normal", "nonfinite"], domains=["positive"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_task_is_fit(name: str) -> None:
    _, fitness = tried(HEALTHY[name])
    assert fitness.fit, fitness.problems


CONSTANT = "y = self.linear(x)\ny = y.max(1, keepdim=True).values\nreturn torch.relu(y - y.mean(1, keepdim=True))"
DEGENERATE: dict[str, tuple[Task, set[Mutant]]] = {
    "zeros whatever comes in": (a_task(CONSTANT, LINEAR), {"zeros", "constant", "previous", "weights"}),
    "always the same number": (a_task("return torch.softmax(x.sum(-1, keepdim=True), -1)"), {"constant", "previous"}),
    "the input itself": (a_task("return x * 1.0"), {"passthrough"}),
    "an answer to the shape": (
        a_task("return torch.linspace(0, 1, x.shape[0]).outer(torch.ones(x.shape[1]))"), {"previous"}
    ),
    "weights that do not show": (
        a_task("return x.exp() + 0 * self.linear(x)", LINEAR), {"weights"}
    ),
    "small answers under an absolute tolerance": (
        a_task("return torch.softmax(x, -1) * 1e-4", tolerances={"float32": {"rtol": 1e-4, "atol": 1e-2}}),
        {"zeros", "constant", "previous", "tail", "half"},
    ),
    "a tolerance for half precision": (
        a_task("return x @ x.t()", tolerances={"float32": {"rtol": 1e-2, "atol": 1e-2}}), {"half"}
    ),
    "a last row that a tolerance swallows": (
        a_task(
            "return x.abs() * torch.cat([torch.ones(23), torch.full((1,), 1e-6)])[:, None]",
            tolerances={"float32": {"rtol": 1e-5, "atol": 1e-4}}, distributions=["normal", "uniform"],
        ),
        {"tail"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_task_is_refused_with_the_mutants_that_pass(name: str) -> None:
    one, mutants = DEGENERATE[name]
    _, fitness = tried(one)
    assert {problem.split(" ")[1] for problem in fitness.problems} == mutants


def test_where_tf32_is_allowed_bfloat16_still_is_not() -> None:
    product = "return x @ x.t()"
    loose, tight = ({"float32": {"rtol": number, "atol": number}} for number in (2e-2, 5e-4))
    assert [p.split(" ")[1] for p in tried(a_task(product, tolerances=loose))[1].problems] == ["half"]
    assert tried(a_task(product, tolerances=tight, precision="tf32"))[1].fit


def test_each_output_is_calibrated_on_each_distribution_and_on_what_is_timed_or_hidden() -> None:
    one = a_task("return x @ x.t(), x.sum(-1), x.argmax(-1)")
    facts, fitness = tried(one)
    places = {(bound.distribution, bound.output) for bound in fitness.bounds}
    assert places == {(d, o) for d in (*one.distributions, "original", "offset") for o in ("[0]", "[1]")}
    for output in (output for found in facts.references for output in found.outputs):
        assert output.source == "calibrated"
        assert 1e-4 <= output.rtol <= 1e-2
        assert output.atol <= 1e-2 * max(output.rms, 1e-30) * (1 + 1e-9)


UNCALIBRATED = {
    "it draws random numbers": HEALTHY["dropout"],
    "it computes in float32 whatever comes in": a_task("return torch.softmax(x.float(), -1)"),
    "it does not run in float64": a_task("assert x.dtype is torch.float32\nreturn torch.softmax(x, -1)"),
}


def test_weights_that_are_ones_or_zeros_are_told_because_leaving_them_out_is_right() -> None:
    _, plain = tried(a_task("return self.norm(x)", "self.norm = torch.nn.LayerNorm(32)"))
    assert plain.fit, plain.problems
    assert any("weights norm.weight, norm.bias are all ones or all zeros" in note for note in plain.inert)
    _, drawn = tried(a_task("return self.linear(x)", LINEAR))
    assert not any("ones" in note for note in drawn.inert)


NORM = "c = x - x.mean(-1, keepdim=True)\nreturn c * torch.rsqrt(c.square().mean(-1, keepdim=True) + 1e-5){}"
BIASED = {"init": "self.w, self.b = torch.nn.Parameter(torch.randn(33)), torch.nn.Parameter(torch.randn(33))"}


def test_rows_that_are_all_alike_leave_room_for_the_rounding_that_a_norm_multiplies() -> None:
    one = a_task(NORM.format(" * self.w + self.b"), BIASED["init"], "torch.randn(24, 33)")
    facts, fitness = tried(one)
    assert fitness.fit, fitness.problems
    [alike] = [r.outputs[0] for r in facts.references if (r.workload, r.distribution) == ("small", "ones")]
    assert alike.own_abs < 1e-6, "the reference divides exactly"
    two_units_off, weight, bias = 2 * 2.0**-23, 2.5, 1.0
    assert two_units_off / 1e-5**0.5 * weight < alike.atol + alike.rtol * bias, "as a GPU's division may be"
    assert alike.atol < 0.01 * alike.rms


def test_a_distribution_on_which_rounding_alone_makes_the_answer_is_left_out() -> None:
    facts, fitness = tried(a_task(NORM.format(""), inputs="torch.randn(24, 33)"))
    assert fitness.fit, fitness.problems
    [alike] = [r.outputs[0] for r in facts.references if (r.workload, r.distribution) == ("small", "ones")]
    assert alike.beyond_cap, "all zeros in float64, some hundred roundings in float32"


def test_a_small_difference_of_large_numbers_is_as_exact_as_those_are() -> None:
    facts, fitness = tried(a_task("return torch.nn.functional.elu(x)", inputs="torch.randn(64, 64)"))
    assert fitness.fit, fitness.problems
    [small] = [r.outputs[0] for r in facts.references if (r.workload, r.distribution) == ("small", "small")]
    assert small.atol > 2.0**-23, "exp(x) - 1, as most kernels have it"
    assert small.atol < 1e-6


TABLE = "self.t = torch.nn.Parameter(torch.randn(1000, 8))"


@pytest.mark.parametrize(
    ("forward", "inputs", "domains"),
    [
        ("return self.t[x.long()]", "torch.rand(64)", ["index(1000)"]),
        ("return self.t[torch.floor(torch.sigmoid(x) * 999).long()]", "torch.randn(64)", []),
        ("u = torch.sigmoid(x) * 998\ni = u.floor()\nreturn torch.lerp(self.t[i.long()], self.t[i.long() + 1], "
         "(u - i)[:, None])", "torch.randn(64)", []),
    ],
)  # fmt: skip
def test_noise_makes_no_other_row_of_a_table_out_of_a_whole_number(
    forward: str, inputs: str, domains: list[str]
) -> None:
    _, fitness = tried(a_task(forward, TABLE, inputs, domains=domains))
    assert fitness.fit, fitness.problems


def test_a_threshold_that_turns_over_does_not_loosen_the_bound_of_all_elements() -> None:
    facts, _ = tried(a_task("return torch.round(x * 4) / 4 + x"))
    outputs = [r.outputs[0] for r in facts.references if r.distribution == "normal"]
    assert all(output.noise_abs < 1e-5 and output.atol < 1e-4 for output in outputs)


@pytest.mark.parametrize("why", UNCALIBRATED)
def test_where_float64_cannot_tell_the_default_holds_and_it_is_said(why: str) -> None:
    _, fitness = tried(UNCALIBRATED[why])
    assert fitness.fit
    assert not fitness.bounds
    assert why in fitness.notes[0]
    assert fitness.distributions == ("normal", "uniform", "large")


BAD = {
    "other random numbers each time": (
        "return x + torch.tensor(list(os.urandom(1)))", "gives another answer the second time"
    ),
    "in place": ("return x.mul_(2)", "writes into its inputs"),
    "gradients": (
        "y = torch.exp(x.requires_grad_())\nreturn torch.autograd.grad(y.sum(), x)[0]", "raised RuntimeError"
    ),
    "nothing": ("return None", "returns neither a tensor nor a number"),
    "never finite": ("return x / 0 * 0", "the reference is not finite on small"),
    "200 GB": ("return x.repeat(1 << 14, 1 << 13)[:1]", "allocat"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_reference_is_told_in_one_sentence(name: str) -> None:
    forward, said = BAD[name]
    try:
        _, fitness = tried(a_task(forward))
        text = "; ".join(fitness.problems)
        assert not fitness.fit
    except TaskError as error:
        text = str(error)
    assert said in text
    assert "\n" not in text


def test_a_reference_keeps_its_weights_and_the_default_dtype_whatever_is_tried_of_it() -> None:
    one = HEALTHY["a layer and a rectifier"]
    held = reference.hold(one, "cpu", "cpu")["small"]
    before = [parameter.clone() for parameter in held.built.module.parameters()]
    tried(one)
    drawn = held.draw("normal")
    for kind in ("exact", "half", "weights"):
        held.variant(kind, drawn.arguments, 1)
    assert torch.get_default_dtype() is torch.float32
    assert all(torch.equal(a, b) for a, b in zip(before, held.built.module.parameters(), strict=True))


PAIR = "torch.randn(24, 32), torch.randn(24, 32)"


def a_pair(forward: str, init: str = "pass", **more: Any) -> Task:
    one = a_task(forward, init, PAIR, **more)
    return one.model_copy(update={"source": one.source.replace("def forward(self, x):", "def forward(self, x, y):")})


INERT = {
    "an input": (a_pair("return torch.softmax(x, -1)"), "input 2"),
    "an input within rounding": (a_pair("return torch.softmax(x, -1) + 1e-9 * y.tanh()"), "input 2"),
    "a bias before a norm": (
        a_task("return torch.nn.functional.layer_norm(x @ self.w + self.b, (32,))",
               "self.w = torch.nn.Parameter(torch.randn(32, 32)); self.b = torch.nn.Parameter(torch.randn(()))"),
        "weight b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INERT)
def test_what_no_answer_reacts_to_is_told_and_the_task_is_fit(name: str) -> None:
    one, of = INERT[name]
    _, fitness = tried(one)
    assert fitness.fit, fitness.problems
    assert [f"no answer of its reference reacts to {of} beyond its tolerance:" in note for note in fitness.notes] == [
        True
    ]


AVERAGED = {
    "mean squared error": a_pair("return ((x - y) ** 2).mean()"),
    "cross entropy": a_task(
        "return torch.nn.functional.cross_entropy(x, torch.arange(64, device=x.device))", inputs="torch.randn(64, 512)"
    ),
    "hinge loss": a_pair("return torch.clamp(1 - x * y.sign(), min=0).mean()"),
    "the norm of a row": a_task("return x.norm(dim=-1)", inputs="torch.randn(8, 4096)"),
    "a mean": a_task("return x.mean()", inputs="torch.rand(256, 256)"),
}


DRAWS = 6
"""Of a hinge loss one draw in ten hides half precision: signs of labels let errors cancel, whatever is drawn."""


def told_of_half_precision(task: Task) -> bool:
    facts, fitness = tried(task)
    unnoted = not [note for note in fitness.notes if "half precision" in note]
    return fitness.fit and unnoted and any(t.mutant == "half_inputs" and not t.passes for t in facts.trials)


@pytest.mark.parametrize("name", AVERAGED)
def test_inputs_in_half_precision_are_told_where_answers_average_them(name: str) -> None:
    for precision in ("ieee", "tf32"):
        task = AVERAGED[name].model_copy(update={"precision": precision})
        assert any(told_of_half_precision(task) for _ in range(DRAWS if name == "hinge loss" else 1))


def test_where_no_answer_tells_half_precision_that_is_said_and_the_task_is_fit() -> None:
    _, fitness = tried(a_pair("return 1 - torch.nn.functional.cosine_similarity(x, y, -1).mean()"))
    assert fitness.fit, fitness.problems
    assert [note for note in fitness.notes if "inputs and weights in half precision give right answers" in note]


TIED = {
    "the place of the largest": ("return x.argmax(-1)", "torch.randn(24, 32)"),
    "the largest and their places": ("return torch.topk(x, 4)[0], torch.topk(x, 4)[1]", "torch.randn(24, 32)"),
    "an order": ("return x.sort(-1)[1]", "torch.randn(24, 32)"),
}


@pytest.mark.parametrize("name", TIED)
def test_where_equal_numbers_leave_whole_numbers_open_nobody_is_judged_by_them(name: str) -> None:
    forward, inputs = TIED[name]
    _, fitness = tried(a_task(forward, inputs=inputs))
    assert fitness.fit, fitness.problems
    assert {"normal", "uniform", "large", "small", "mixed", "spikes"} <= set(fitness.distributions)
    assert not {"zeros", "ones"} & set(fitness.distributions)
    assert [
        text for text in fitness.left_out if "equal numbers leave open which whole numbers are right on small" in text
    ]


@pytest.mark.parametrize("name", ["a causal mask", "a sign", "one number"])
def test_a_task_without_whole_numbers_keeps_its_equal_inputs(name: str) -> None:
    _, fitness = tried(HEALTHY[name])
    assert {"zeros", "ones"} <= set(fitness.distributions), fitness.left_out


def test_a_task_with_a_check_of_its_own_judges_ties_itself() -> None:
    one = a_task("return x.argmax(-1)")
    right = "(inputs[0].gather(1, output[:, None])[:, 0] == inputs[0].amax(1)).all()"
    checks = f"\ndef check(inputs, output):\n    return bool({right})\n"
    facts, fitness = tried(one.model_copy(update={"source": one.source + checks}))
    assert {"zeros", "ones"} <= set(fitness.distributions), (fitness.left_out, fitness.problems)
    assert {reference.unsettled_share for reference in facts.references} == {0.0}


REACTS = {
    "both inputs": a_pair("return x @ y.t()"),
    "an input that counts on one distribution alone": a_pair("return torch.where(y > 50, y, x.exp().clamp(max=9))"),
    "a mask": a_task(
        "return x.masked_fill(m, 0)", inputs="torch.randn(24, 32), torch.rand(24, 32) > 0.5"
    ),
    "all weights": a_task("return torch.relu(self.linear(x))", LINEAR),
}  # fmt: skip
REACTS["a mask"] = REACTS["a mask"].model_copy(
    update={"source": REACTS["a mask"].source.replace("def forward(self, x):", "def forward(self, x, m):")}
)


@pytest.mark.parametrize("name", REACTS)
def test_of_what_answers_react_to_nothing_is_told(name: str) -> None:
    facts, fitness = tried(REACTS[name])
    assert fitness.fit, fitness.problems
    assert not fitness.notes
    assert any(trial.mutant == "ignored" for trial in facts.trials)


def test_an_input_with_an_effect_that_the_tolerance_swallows_makes_the_task_unfit() -> None:
    _, fitness = tried(
        a_pair("return 10 * torch.sign(x) + y.clamp(-2, 2)", tolerances={"float32": {"rtol": 1e-3, "atol": 1.0}},
               distributions=["normal"], precision="tf32")
    )  # fmt: skip
    assert [problem.split(" (")[0] for problem in fitness.problems if "input 2" in problem] == ["mutant ignored"]


def test_a_module_with_weights_by_the_dozen_is_not_looked_at_one_by_one() -> None:
    many = "self.many = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(32)) for _ in range(9)])"
    facts, _ = tried(a_task("return x + sum(self.many)", many, distributions=["normal"]))
    assert not [trial for trial in facts.trials if trial.mutant == "ignored"]

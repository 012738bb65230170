"""What the referee finds of a task, and how it serves whole procedures on one."""

from typing import Any

import pytest
from bench_tasks import HONEST, SOFTMAX, first_problem, forward, task

from kernelgate.tasks.catalogue import Catalogue


def test_qualification_facts_tell_a_good_tolerance_from_a_useless_one(conduct: Any) -> None:
    steps = [["reference", "small", "normal"], ["trials", "small", "normal"], ["ceilings"]]
    good = conduct(task(), HONEST, steps)["results"]
    assert good[0]["finite"]
    assert good[0]["deterministic"]
    assert good[0]["output_std"] > 0
    assert good[0]["bytes_needed"] > 0
    tried = {trial["mutant"] for trial in good[1]}
    assert tried == {"zeros", "constant", "passthrough", "previous", "tail", "half", "half_inputs"}, "no weights"
    assert not any(trial["passes"] for trial in good[1])
    assert good[2]["copy_gb_s"] > 0
    useless = conduct(task(tolerances={"float32": {"rtol": 0.0, "atol": 1.0}}), HONEST, steps)["results"]
    passing = {trial["mutant"] for trial in useless[1] if trial["passes"]}
    assert passing == tried - {"passthrough"}, "inputs are larger than that"


def test_a_task_without_toml_is_made_small_enough(conduct: Any) -> None:
    source = SOFTMAX.replace("32, 64", "65536, 4096")
    big = task(source, workloads=[{"name": "small", "shrink_to_bytes": 64 << 20, "devices": ["cpu"]}])
    outcome = conduct(big, HONEST, [["workloads", {"held_out": True}]])
    facts = outcome["results"][0][0]
    assert 1 << 20 < facts["bytes_in"] + facts["bytes_out"] <= 64 << 20


def test_a_qualification_says_at_which_sizes_the_reference_was_tried(conduct: Any) -> None:
    source = SOFTMAX.replace("32, 64", "65536, 4096")
    sizes = [
        {"name": "small", "shrink_to_bytes": 1 << 20, "devices": ["cpu"]},
        {"name": "wide", "overrides": {"ROWS": 3}},
    ]
    steps = [["reference", "small", "normal"], ["reference", "wide", "normal"]]
    small, wide = conduct(task(source, workloads=sizes), HONEST, steps)["results"]
    rows, columns = small["overrides"]["ROWS"], small["overrides"].get("COLS", 4096)
    assert 2 * rows * columns * 4 <= 1 << 20
    assert small["inputs"] == [f"float32 [{rows}, {columns}]"]
    assert (wide["overrides"], wide["inputs"]) == ({"ROWS": 3}, ["float32 [3, 4096]"])


@pytest.mark.parametrize("rows", [1 << 12, 1 << 20], ids=["a little too large", "far too large"])
def test_a_task_with_sizes_that_cannot_be_halved_is_too_large_not_broken(conduct: Any, rows: int) -> None:
    source = SOFTMAX.replace("ROWS, COLS = 32, 64\n", "").replace("ROWS, COLS", f"{rows}, 4096")
    literal = task(source, workloads=[{"name": "small", "shrink_to_bytes": 1 << 20, "devices": ["cpu"]}])
    (reply,) = conduct(literal, HONEST, [], serve=["qualify"])["replies"]
    assert reply["facts"]["bytes_needed"] == 2 * rows * 4096 * 4
    assert reply["facts"]["bytes_allowed"] == 1 << 20


BUNDLED = [entry for entry in Catalogue().names() if "/" not in entry]


@pytest.mark.parametrize("name", BUNDLED)
def test_each_bundled_reference_is_right_as_its_own_candidate(conduct: Any, name: str) -> None:
    bundled = Catalogue().task(name)
    candidate = bundled.source.replace("class Model(", "class ModelNew(")
    smallest = conduct(bundled.model_dump(mode="json"), candidate, [["workloads", {"held_out": True}]])["results"][0][0]
    compares = [["compare", smallest["name"], distribution] for distribution in bundled.distributions]
    block = [["prepare", smallest["name"], 2], ["block", "candidate", 3, {"verify": True}]]
    outcome = conduct(bundled.model_dump(mode="json"), candidate, [["load"], *compares, *block])
    assert first_problem(outcome) == "none"


def test_a_norm_that_takes_denormals_for_zero_is_wrong(conduct: Any) -> None:
    norm = Catalogue().task("rmsnorm").model_dump(mode="json")
    bound = {"workload": "64x256", "distribution": "denormal", "output": "", "rtol": 1e-4, "atol": 1.1754944e-38}
    honest = norm["source"].replace("class Model(", "class ModelNew(")
    flushing = honest.replace(
        "mean_square =", "x = torch.where(x.abs() < 1.1754944e-38, 0.0, x)\n        mean_square ="
    )
    steps = [["load"], ["compare", "64x256", "normal"], ["compare", "64x256", "denormal"]]
    assert first_problem(conduct({**norm, "bounds": [bound]}, honest, steps)) == "none"
    outcome = conduct({**norm, "bounds": [bound]}, flushing, steps)
    assert outcome["results"][1]["problem"] == "none"
    assert first_problem(outcome) == "wrong_values"


def test_the_referee_serves_every_procedure_on_one_held_task(conduct: Any) -> None:
    two = task(workloads=[{"name": "small"}, {"name": "hidden", "overrides": {"ROWS": 33}, "held_out": True}])
    outcome = conduct(two, HONEST, [], serve=["check_correctness", "quick_time", "profile", "probe"])
    check, quick, profile, probe = (reply["facts"] for reply in outcome["replies"])
    assert {reply["op"] for reply in outcome["replies"]} == {"done"}
    assert len(check["comparisons"]) == check["planned"] > 0
    assert all(comparison["problem"] == "none" for comparison in check["comparisons"])
    assert [timing["fault"] for timing in quick["timings"]] == [None]
    assert len(quick["timings"][0]["pairs"]) > 1
    assert profile["profile"]["operators"]
    assert probe["well"]
    assert outcome["replies"][1]["prepare_s"] > 0
    assert "checking" in outcome["stages"]


SLOW_FIRST = forward(
    "if self.cold:\n    time.sleep(0.5)\n    self.cold = False\nreturn torch.softmax(x, -1)",
    "import time\ntime.sleep(0.25)",
    init="self.cold = True",
)


def test_what_a_first_use_within_a_check_compiles_is_told_as_preparing(conduct: Any) -> None:
    (reply,) = conduct(task(), SLOW_FIRST, [], serve=["check_correctness"])["replies"]
    assert {comparison["problem"] for comparison in reply["facts"]["comparisons"]} == {"none"}
    assert 0.75 <= reply["prepare_s"] < reply["wall_s"]
    (usual,) = conduct(task(), HONEST, [], serve=["check_correctness"])["replies"]
    assert usual["prepare_s"] < 0.5


def test_a_task_that_fails_is_a_finding_of_its_qualification_and_a_fault_of_any_other_call(conduct: Any) -> None:
    broken = task(
        SOFTMAX.replace("return torch.softmax", "raise ValueError('unfinished')\n        return torch.softmax")
    )
    outcome = conduct(broken, HONEST, [], serve=["qualify", "check_correctness"])
    qualified, checked = outcome["replies"]
    assert "ValueError: unfinished" in qualified["facts"]["error"]
    assert checked["op"] == "failed"
    assert "ValueError: unfinished" in checked["error"]


def test_a_reference_that_writes_into_its_inputs_does_not_qualify(conduct: Any) -> None:
    rude = task(SOFTMAX.replace("return torch.softmax(x", "return torch.softmax(x.add_(1)"))
    (reply,) = conduct(rude, HONEST, [], serve=["qualify"])["replies"]
    assert "writes into its inputs" in reply["facts"]["error"]


def test_a_task_larger_than_the_memory_is_refused_with_its_bytes(conduct: Any) -> None:
    huge = task(SOFTMAX.replace("32, 64", "1 << 20, 1 << 20"))
    qualified, checked = conduct(huge, HONEST, [], serve=["qualify", "check_correctness"])["replies"]
    assert qualified["facts"]["bytes_needed"] > 1 << 42
    assert 0 < qualified["facts"]["bytes_allowed"] < 1 << 42
    assert checked["op"] == "failed"
    assert "bytes of memory" in checked["error"]


def test_weights_larger_than_the_memory_are_refused_with_their_bytes(conduct: Any) -> None:
    layer = SOFTMAX.replace(
        "    def forward", "    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Linear(64, 1 << 30)\n    def forward",
    ).replace("return torch.softmax(x", "return torch.softmax(self.layer(x)")  # fmt: skip
    assert "Linear" in layer
    (qualified,) = conduct(task(layer), HONEST, [], serve=["qualify"])["replies"]
    assert qualified["facts"]["bytes_needed"] > 64 << 32
    assert 0 < qualified["facts"]["bytes_allowed"] < 64 << 32

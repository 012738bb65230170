"""A task's digest changes exactly if something changes that a verdict depends on."""

from typing import Any

import pytest

from kernelgate.tasks.model import Bound, Task, Tolerance, Workload

TASK = Task(
    name="softmax",
    title="Softmax",
    group="bundled",
    source="N = 1\n",
    workloads=(Workload(name="a", overrides={"N": 4}, devices=("cpu",)), Workload(name="b")),
)
FIRST, SECOND = TASK.workloads
FOUND = Bound(workload="a", distribution="normal", output="", rtol=1e-4, atol=0.0)
LABELS: dict[str, Any] = {
    "name": "other",
    "title": "Other",
    "group": "mine",
    "description": "Other.",
    "bounds": (FOUND,),
}
JUDGED: dict[str, Any] = {
    "source": "N = 2\n",
    "workloads": (FIRST,),
    "tolerances": {"float32": Tolerance(rtol=1e-3, atol=0)},
    "precision": "tf32",
    "weight_seed": 1,
    "distributions": ("normal",),
    "domains": ("positive",),
    "languages": ("triton",),
    "allow_library_calls": False,
    "baselines": ("eager", "compile"),
    "baseline_kernel": "class ModelNew: ...",
}
WORKLOAD: dict[str, Any] = {
    "name": "c", "overrides": {"N": 5}, "held_out": True, "devices": ("cuda",), "shrink_to_bytes": 9,
}  # fmt: skip


def test_each_field_is_known_here_as_a_label_or_measured_or_judged():
    assert set(LABELS) | set(JUDGED) == set(Task.model_fields)
    assert set(WORKLOAD) == set(Workload.model_fields)


@pytest.mark.parametrize("field", LABELS)
def test_a_label_does_not_change_it(field: str):
    assert TASK.model_copy(update={field: LABELS[field]}).digest == TASK.digest


@pytest.mark.parametrize("field", JUDGED)
def test_what_is_judged_changes_it(field: str):
    assert TASK.model_copy(update={field: JUDGED[field]}).digest != TASK.digest


@pytest.mark.parametrize("field", WORKLOAD)
def test_what_a_workload_says_changes_it(field: str):
    changed = SECOND.model_copy(update={field: WORKLOAD[field]})
    assert TASK.model_copy(update={"workloads": (FIRST, changed)}).digest != TASK.digest


def test_it_survives_the_way_through_json_and_another_order_of_keys():
    assert Task.model_validate_json(TASK.model_dump_json()).digest == TASK.digest
    overrides = ({"N": 1, "M": (2, 3)}, {"M": (2, 3), "N": 1})
    digests = {TASK.model_copy(update={"workloads": (Workload(name="a", overrides=o),)}).digest for o in overrides}
    assert len(digests) == 1


def test_a_workload_that_is_made_small_cannot_also_name_its_sizes():
    with pytest.raises(ValueError, match="workload small is made small automatically"):
        Workload(name="small", shrink_to_bytes=9, overrides={"N": 1})

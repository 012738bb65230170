"""The six bundled tasks run at each CPU workload, and no answer without work behind it is right on them."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import DEFAULT_DISTRIBUTIONS, Task, Workload
from kernelgate.tasks.source import constants, with_overrides

torch = pytest.importorskip("torch")

TASKS = {entry.name: entry.task for entry in Catalogue().entries() if entry.task is not None}
ON_CPU = [(task, workload) for task in TASKS.values() for workload in task.workloads_on("cpu", held_out=True)]
SMALLEST_BYTES = 256 << 10
LARGEST_BYTES = 16 << 20


def name_of(value: object) -> str:
    return value.name if isinstance(value, Task | Workload) else ""


def loaded(task: Task, workload: Workload) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(compile(with_overrides(task.source, workload.overrides), f"{task.name}/reference.py", "exec"), namespace)
    return namespace


def made(names: dict[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
    torch.manual_seed(0)
    model = names["Model"](*names["get_init_inputs"]())
    return model, names["get_inputs"]()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("task", TASKS.values(), ids=name_of)
def test_each_has_two_public_workloads_and_a_hidden_one_with_odd_sizes(task: Task, device: Any):
    public = task.workloads_on(device, held_out=False)
    hidden = [w for w in task.workloads_on(device, held_out=True) if w.held_out]
    assert len(public) >= 2
    assert len(hidden) == 1
    assert all(isinstance(size, int) and size % 2 for size in hidden[0].overrides.values())
    assert not any(str(size) in hidden[0].name for size in hidden[0].overrides.values())


@pytest.mark.parametrize("task", TASKS.values(), ids=name_of)
def test_each_workload_sets_every_size(task: Task):
    sizes = {name for name, value in constants(task.source).items() if isinstance(value, int)}
    assert all(set(workload.overrides) == sizes for workload in task.workloads)


@pytest.mark.parametrize(("task", "workload"), ON_CPU, ids=name_of)
def test_the_reference_is_finite_the_same_twice_and_near_its_answer_in_float64(task: Task, workload: Workload):
    with torch.no_grad():
        model, inputs = made(loaded(task, workload))
        answer = model(*inputs)
        exact = model.double()(*[x.double() if x.is_floating_point() else x for x in inputs])
        again, same_inputs = made(loaded(task, workload))
        assert torch.equal(again(*same_inputs), answer)
    tolerance = task.tolerance("float32")
    assert answer.dtype == torch.float32
    assert torch.isfinite(answer).all()
    assert answer.std() > 0
    by_size = tolerance.atol * max(1.0, float(exact.abs().median()))
    error = (answer.double() - exact).abs() / (by_size + tolerance.rtol * exact.abs())
    assert error.max() < 0.25  # room for another order of summation


@pytest.mark.parametrize(("task", "workload"), ON_CPU, ids=name_of)
def test_zeros_a_constant_and_an_input_are_wrong_answers(task: Task, workload: Workload):
    with torch.no_grad():
        model, inputs = made(loaded(task, workload))
        answer = model(*inputs)
    tolerance = task.tolerance("float32")
    limit = tolerance.atol * max(1.0, float(answer.abs().median())) + tolerance.rtol * answer.abs()
    same_shape = [x for x in inputs if x.shape == answer.shape and x.dtype == answer.dtype]
    for mutant in (torch.zeros_like(answer), torch.full_like(answer, answer.mean()), *same_shape):
        assert ((mutant - answer).abs() <= limit).float().mean() < 0.1


@pytest.mark.parametrize("task", TASKS.values(), ids=name_of)
def test_an_answer_that_leaves_the_weights_out_is_wrong(task: Task):
    names = loaded(task, task.workloads[0])
    with torch.no_grad():
        model, inputs = made(names)
        answer = model(*inputs)
        for name, parameter in list(model.named_parameters()):
            kept = parameter.clone()
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            assert not torch.allclose(model(*inputs), answer, rtol=1e-2), name
            parameter.copy_(kept)
        assert torch.equal(model(*inputs), answer)


@pytest.mark.parametrize("task", TASKS.values(), ids=name_of)
def test_the_cpu_workloads_are_small_enough_for_a_laptop_and_an_interpreter(task: Task):
    sizes: list[int] = []
    for workload in task.workloads_on("cpu", held_out=True):
        with torch.no_grad():
            model, inputs = made(loaded(task, workload))
            sizes.append(sum(math.prod(x.shape) * x.element_size() for x in (*inputs, model(*inputs))))
    assert min(sizes) <= SMALLEST_BYTES
    assert max(sizes) <= LARGEST_BYTES


def test_labels_of_the_smallest_workload_are_valid_indices():
    task = TASKS["cross_entropy"]
    classes = [workload.overrides["CLASSES"] for workload in task.workloads]
    assert task.domains[1] == "index(256)"
    assert min(size for size in classes if isinstance(size, int)) == 256


@pytest.mark.parametrize("task", TASKS.values(), ids=name_of)
def test_each_is_checked_on_denormals_or_where_products_of_them_vanish_on_nan_and_inf(task: Task):
    unusual = {"denormal", "nonfinite"} & set(task.distributions)
    assert unusual == ({"nonfinite"} if task.name == "matmul" else {"denormal"})
    assert set(DEFAULT_DISTRIBUTIONS) < set(task.distributions)

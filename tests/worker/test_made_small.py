"""A task that is made small keeps what its answer is made of, where some size does."""

import json

import pytest
import torch
from bench_tasks import task

from kernelgate.tasks.model import Task
from kernelgate.tools.worker import reference
from kernelgate.tools.worker.degenerate import NONE, Normalised
from kernelgate.tools.worker.memory import DoesNotFit

GROUPED = """
import torch
ROWS, WIDTH, GROUPS = {rows}, {width}, {groups}
class Model(torch.nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.linear = torch.nn.Linear(width, width, bias=False)
        self.norm = torch.nn.GroupNorm(groups, width)
    def forward(self, x):
        return torch.relu(self.norm(self.linear(x))) + 1
def get_inputs():
    return [torch.rand(ROWS, WIDTH)]
def get_init_inputs():
    return [WIDTH, GROUPS]
"""
ALWAYS_ONE = GROUPED.replace("GroupNorm(groups, width)", "GroupNorm(width, width)")


def held(source: str, limit: int, **constants: object) -> reference.HeldWorkload:
    small = [{"name": "small", "shrink_to_bytes": limit, "devices": ["cpu"]}]
    one = Task.model_validate_json(json.dumps(task(source.format(**constants), workloads=small)))
    return reference.hold(one, "cpu", "cpu")["small"]


def test_groups_keep_several_channels_where_all_sizes_together_can_be_halved() -> None:
    found = held(GROUPED, 128 << 10, rows=1024, width=1024, groups=64)
    sizes = {name: int(str(value)) for name, value in found.overrides.items()}
    assert sizes["WIDTH"] // sizes["GROUPS"] == 1024 // 64
    assert found.facts.bytes_out <= 64 << 10
    assert not torch.equal(*(found.expect(found.draw("normal").arguments, 0) for _ in range(2)))


def test_where_no_halving_within_the_limit_helps_the_next_larger_size_is_taken() -> None:
    source = GROUPED.replace("ROWS, WIDTH)]", "WIDTH, WIDTH)]")
    found = held(source, 32 << 10, rows=1, width=1024, groups="min(64, 1 << 10)")
    assert found.overrides == {"WIDTH": 256}, "at 64 there was one channel for each of 64 groups, at 128 two"


def test_a_task_that_is_degenerate_at_all_sizes_is_judged_at_the_first_that_fits() -> None:
    found = held(ALWAYS_ONE, 32 << 10, rows=64, width=256, groups=8)
    assert found.sizes.degenerate
    assert found.facts.bytes_out <= 16 << 10


LITERAL = (
    "import torch\nCOUNT = {count}\n"
    + GROUPED.partition("class Model")[1]
    + """(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) * COUNT
def get_inputs():
    return [torch.rand({rows}, 1024)]
def get_init_inputs():
    return []
"""
)


@pytest.mark.parametrize("count", ["64", "'no number'[0:0] or 1.5"], ids=["a constant that is no size", "none"])
def test_a_task_whose_sizes_cannot_be_halved_is_judged_at_its_own_up_to_what_any_task_may_have(count: str) -> None:
    found = held(LITERAL, 256 << 10, rows=256, count=count)
    assert found.facts.bytes_in == 1 << 20
    with pytest.raises(DoesNotFit):
        held(LITERAL, 256 << 10, rows=16 << 10, count=count)


def test_a_healthy_task_is_made_small_as_ever() -> None:
    found = held(GROUPED, 32 << 10, rows=256, width=128, groups=8)
    assert found.overrides == {"ROWS": 64, "WIDTH": 64}


@pytest.mark.parametrize(
    ("module", "shape", "fewest"),
    [
        (torch.nn.GroupNorm(4, 8), (2, 8), 2),
        (torch.nn.GroupNorm(4, 8), (2, 8, 5), 10),
        (torch.nn.LayerNorm([8]), (2, 8), 8),
        (torch.nn.InstanceNorm1d(3), (2, 3, 6), 6),
        (torch.nn.Softmax(dim=1), (2, 3, 6), 3),
        (torch.nn.Linear(8, 8), (2, 8), NONE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_numbers_that_a_norm_is_taken_over_are_counted(
    module: torch.nn.Module, shape: tuple[int, ...], fewest: int
) -> None:
    with Normalised() as normalised, torch.no_grad():
        module(torch.randn(shape))
    assert normalised.fewest == fewest


RECTIFIED = GROUPED.replace("torch.relu(self.norm(self.linear(x))) + 1", "torch.relu(self.linear(x) - 99)")


def test_zeros_on_a_files_own_inputs_alone_make_no_size_degenerate() -> None:
    found = held(RECTIFIED, 32 << 10, rows=256, width=128, groups=8)
    assert found.overrides == {"ROWS": 64, "WIDTH": 64}
    assert not found.sizes.degenerate


@pytest.mark.parametrize(
    ("made", "doubles"), [("torch.rand({rows}, 1024)", False), ("torch.rand({rows}, 1024).double()", True)]
)
def test_a_task_of_float64_is_known_as_one(made: str, doubles: bool) -> None:
    source = LITERAL.replace("torch.rand({rows}, 1024)", made)
    assert held(source, 256 << 10, rows=256, count="64").facts.doubles is doubles

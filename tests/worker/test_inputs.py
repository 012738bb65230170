"""Inputs: as `get_inputs` makes them, floats with the values of a distribution, within their domain, from one seed."""

import random
from typing import Any, get_args

import pytest
import torch

from kernelgate.tasks.model import Distribution, Precision
from kernelgate.tools.worker.inputs import draw, seeded, transform
from kernelgate.tools.worker.renewal import renew
from kernelgate.tools.worker.structure import Unsupported, decode, encode, leaves, replaced
from kernelgate.tools.worker.variants import halved

DISTRIBUTIONS = get_args(Distribution)
MADE = [name for name in DISTRIBUTIONS if name != "original"]


def mixture() -> list[object]:
    return [
        torch.rand(8, 16),
        torch.randn(6, 4).t(),
        torch.softmax(torch.randn(4, 8), -1),
        torch.randint(0, 9, (12,)),
        torch.rand(5) > 0.5,
        2.5,
        (torch.rand(3).half(), {"k": torch.ones(4, dtype=torch.bfloat16)}),
        random.random(),
    ]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_same_seed_draws_the_same_inputs(distribution: Distribution) -> None:
    first, again, other = (draw(mixture, seed, "cpu", distribution, ()) for seed in (5, 5, 6))
    same = [torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(first.tensors, again.tensors, strict=True)]
    assert all(same)
    assert first.arguments[7] == again.arguments[7]
    assert not torch.equal(first.tensors[2], other.tensors[2])


@pytest.mark.parametrize("distribution", MADE)
def test_only_floats_straight_from_a_factory_get_other_values(distribution: Distribution) -> None:
    drawn = draw(mixture, 5, "cpu", distribution, ())
    original = draw(mixture, 5, "cpu", "original", ())
    for position in (2, 3, 4):
        assert torch.equal(drawn.arguments[position], original.arguments[position])
    assert not torch.equal(drawn.arguments[0], original.arguments[0])
    assert drawn.arguments[5] == 2.5
    for mine, made in zip(original.tensors, drawn.tensors, strict=True):
        assert made.dtype == mine.dtype
        assert made.shape == mine.shape
        assert made.stride() == mine.stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("distribution", [name for name in MADE if name != "nonfinite"])
def test_each_distribution_is_finite_and_like_its_name(distribution: Distribution, dtype: torch.dtype) -> None:
    tensor = torch.zeros(64, 64, dtype=dtype)
    torch.default_generator.manual_seed(3)
    transform(tensor, distribution, "any")
    values = tensor.double()
    assert bool(values.isfinite().all())
    spread = float(values.std())
    like = {
        "normal": 0.9 < spread < 1.1,
        "uniform": float(values.abs().max()) <= 1 and spread > 0.4,
        "large": 36 < spread < 44,
        "small": 0.0009 < spread < 0.0011,
        "mixed": spread > 1 and float(values.abs().median()) < spread / 3,
        "zeros": not values.any(),
        "ones": bool((values == 1).all()),
        "spikes": 100 <= float(values.max()) <= 107 and float(values.median()) < 1,
        "offset": float(values.median()) > 2.9 and 0.45 < spread < 0.55,
        "denormal": 0 < float(values.abs().max()) < torch.finfo(dtype).tiny,
    }
    assert like[distribution]


@pytest.mark.parametrize("distribution", ["uniform", "large", "small", "offset"])
def test_positive_numbers_are_all_rounded_down_by_half_precision(distribution: Distribution) -> None:
    for tensor in (torch.zeros(64, 64), torch.zeros(64, 64).t(), torch.zeros(())):
        transform(tensor, distribution, "any")
        positive = tensor[tensor > 0].flatten()
        digits_kept: dict[Precision, int] = {"ieee": 11, "tf32": 8}
        for precision, digits in digits_kept.items():
            off = (positive - halved(positive, precision)) / positive
            assert bool((off > 0).all())
            assert bool((off > 2.0**-digits / 8).all()), "far, whatever the leading digits"
        if positive.numel() > 2000:
            assert len(set(positive.tolist())) > 0.99 * len(positive), "few are alike: a largest one is one"


@pytest.mark.parametrize("shape", [(3,), (64, 64), (1,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_not_finite_is_sprinkled_among_what_is(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = torch.zeros(shape, dtype=dtype)
    transform(tensor, "nonfinite", "any")
    kinds = (tensor.isnan(), tensor == float("inf"), tensor == float("-inf"))
    assert all(bool(kind.any()) for kind in kinds[: min(3, tensor.numel())])
    assert int((~tensor.isfinite()).sum()) <= max(3, tensor.numel() // 1000 + 3)


@pytest.mark.parametrize("distribution", MADE)
def test_values_stay_within_their_domain(distribution: Distribution) -> None:
    def get_inputs() -> list[object]:
        return [torch.softmax(torch.randn(4, 8), -1), torch.rand(4, 8), torch.rand(16) + 0, torch.rand(4, 8)]

    drawn = draw(get_inputs, 1, "cpu", distribution, ("any", "positive", "any", "probability")).arguments
    assert bool((drawn[1] > 0).all())
    if distribution not in ("zeros", "ones", "denormal", "nonfinite"):
        assert torch.allclose(drawn[3].sum(-1), torch.ones(4))
    indices = draw(lambda: [torch.rand(64)], 1, "cpu", distribution, ("index(7)",)).arguments[0]
    assert set(indices.tolist()) <= set(range(7))


def test_tensors_with_independent_elements_are_known() -> None:
    assert draw(mixture, 5, "cpu", "original", ()).exchangeable == (0, 1, 3, 5)
    assert 2 not in draw(mixture, 5, "cpu", "normal", ()).exchangeable
    expanded = draw(lambda: [torch.rand(4, 1).expand(4, 8), torch.rand(1), torch.zeros(9)], 5, "cpu", "original", ())
    assert expanded.exchangeable == ()


def test_an_expanded_input_keeps_its_overlapping_memory() -> None:
    drawn = draw(lambda: [torch.rand(4, 1).expand(4, 8)], 5, "cpu", "normal", ()).tensors[0]
    assert drawn.stride() == (1, 0)


def test_a_sparse_input_is_refused_with_its_position() -> None:
    with pytest.raises(Unsupported, match=r"input 1 is a torch\.sparse_coo"):
        draw(lambda: [1, torch.eye(3).to_sparse()], 5, "cpu", "original", ())


def test_drawing_leaves_pythons_random_numbers_alone() -> None:
    random.seed(4)
    expected = random.Random(4).random()
    draw(mixture, 5, "cpu", "normal", ())
    assert random.random() == expected


NESTED: Any = {"a": [1, 2.5, float("inf"), None, True], 3: (torch.float16, "x", torch.arange(3)), "e": ((),)}


def test_nested_arguments_cross_as_json_and_come_back_equal() -> None:
    tensors: list[torch.Tensor] = []

    def place(tensor: torch.Tensor) -> int:
        tensors.append(tensor)
        return len(tensors) - 1

    node = encode(NESTED, place)
    back = decode(type(node).model_validate_json(node.model_dump_json()), tensors)
    assert list(back) == ["a", 3, "e"]
    assert back["a"] == [1, 2.5, float("inf"), None, True]
    assert back[3][0] is torch.float16
    assert torch.equal(back[3][2], torch.arange(3))
    assert back["e"] == ((),)


def test_answers_have_paths() -> None:
    paths = [path for path, _ in leaves({"y": torch.ones(1), "more": (1, [2])})]
    assert paths == ["['y']", "['more'][0]", "['more'][1][0]"]
    assert [path for path, _ in leaves(torch.ones(1))] == [""]
    assert replaced((torch.ones(2), 3), lambda tensor: tensor + 1)[0].tolist() == [2, 2]


def test_an_endless_or_strange_answer_is_unsupported() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(Unsupported):
        list(leaves(endless))
    with pytest.raises(Unsupported):
        encode(object(), lambda tensor: 0)


def test_what_is_timed_shows_half_precision_too_and_goes_on_to_when_it_gets_new_values() -> None:
    def get_inputs() -> list[object]:
        return [torch.rand(64, 64), torch.randn(64, 64).t(), torch.randint(0, 9, (64,)).float(), torch.rand(8) * 2]

    drawn = draw(get_inputs, 1, "cpu", "original", ())
    plain, turned, whole, built = drawn.tensors
    with seeded(1):
        as_made: Any = get_inputs()
    assert torch.equal(whole, as_made[2])
    assert torch.equal(built, as_made[3])
    secret = random.Random(2)
    for tensor, made in ((plain, as_made[0]), (turned, as_made[1])):
        assert torch.allclose(tensor, made, rtol=2.0**-7)
        lent, before = torch.empty_like(tensor), tensor.clone()
        for _ in range(3):
            positive = tensor[tensor > 0].flatten()
            for precision in ("ieee", "tf32"):
                assert bool((positive > halved(positive, precision)).all())
            renew(tensor, lent, secret, continuous=True)
            assert torch.equal(tensor, lent)
            assert int((tensor == before).sum()) < 10

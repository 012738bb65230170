"""An element is right when |got - want| <= atol + rtol * |want|; nan and inf must stand where the reference's do."""

import itertools
import random
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgate.tasks.model import EXACT, Tolerance
from kernelgate.tools.worker import compare, patterns
from kernelgate.tools.worker.compare import compare_values, dtype_kind
from kernelgate.tools.worker.patterns import describe_pattern, is_near, looks_like
from kernelgate.tools.worker.poison import draw_poison

LOOSE = Tolerance(rtol=1e-2, atol=1e-3)
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_equal_answers_are_right_in_each_float_dtype(dtype: torch.dtype) -> None:
    want = torch.randn(7, 5).to(dtype)
    assert compare_values(want.clone(), want, EXACT).problem == "none"


@given(st.floats(-1e6, 1e6), st.floats(0, 0.5), st.floats(0, 1))
def test_the_bound_is_the_sum_of_a_part_by_size_and_a_relative_one(want: float, rtol: float, atol: float) -> None:
    tolerance = Tolerance(rtol=rtol, atol=atol)
    room = atol * max(1.0, abs(want)) + rtol * abs(want)
    assume(room == 0 or room > 1e-12 * abs(want))  # else the sums below are rounded by more than the room
    wanted = torch.tensor([want], dtype=torch.float64)
    assert compare_values(wanted + 0.99 * room, wanted, tolerance).problem == "none"
    assert compare_values(wanted + 1.01 * room + 1e-6, wanted, tolerance).problem == "wrong_values"


def test_worst_errors_are_reported_for_right_answers_too() -> None:
    finding = compare_values(torch.tensor([1.001, 2.0]), torch.tensor([1.0, 2.0]), LOOSE)
    assert finding.problem == "none"
    assert finding.worst_abs == pytest.approx(1e-3, rel=1e-3)
    assert finding.worst_rel == pytest.approx(1e-3, rel=1e-3)


def test_one_wrong_element_is_named_with_both_values() -> None:
    want = torch.zeros(4, 8)
    got = want.clone()
    got[2, 5] = 3.5
    finding = compare_values(got, want, LOOSE)
    assert finding.problem == "wrong_values"
    assert finding.wrong_share == pytest.approx(1 / 32)
    (first,) = finding.first
    assert (first.index, first.got, first.want) == ((2, 5), "3.5", "0")


def test_at_most_five_mismatches_are_shown() -> None:
    finding = compare_values(torch.ones(10, 10), torch.zeros(10, 10), LOOSE)
    assert [mismatch.index for mismatch in finding.first] == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]
    assert finding.pattern == "every element"


@pytest.mark.parametrize(
    ("got", "want", "problem"),
    [
        (NAN, NAN, "none"),
        (INF, INF, "none"),
        (-INF, -INF, "none"),
        (NAN, 1.0, "nonfinite"),
        (1.0, NAN, "nonfinite"),
        (INF, 1.0, "nonfinite"),
        (INF, -INF, "nonfinite"),
        (INF, NAN, "nonfinite"),
        (1e30, INF, "nonfinite"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_and_signs_of_what_is_not_finite_must_match(
    got: float, want: float, problem: str, dtype: torch.dtype
) -> None:
    pair = [torch.tensor([value, 1.0], dtype=dtype) for value in (got, want)]
    assert compare_values(pair[0], pair[1], Tolerance(rtol=0.5, atol=1.0)).problem == problem


def test_a_wrong_value_beside_matching_nans_is_a_wrong_value() -> None:
    assert compare_values(torch.tensor([NAN, 2.0]), torch.tensor([NAN, 1.0]), LOOSE).problem == "wrong_values"


def test_an_error_beyond_float64_stays_finite_in_the_report() -> None:
    largest = torch.tensor([1e308], dtype=torch.float64)
    finding = compare_values(largest, -largest, LOOSE)
    assert finding.problem == "wrong_values"
    assert 0 < finding.worst_abs < INF


def test_integers_are_compared_exactly_beyond_what_float64_holds() -> None:
    want = torch.tensor([(1 << 60) + 1, 5])
    assert compare_values(want.clone(), want, EXACT).problem == "none"
    assert compare_values(want - torch.tensor([1, 0]), want, EXACT).problem == "wrong_values"


def test_a_byte_that_is_no_truth_value_is_wrong() -> None:
    want = torch.tensor([True, False, True])
    got = torch.tensor([1, 0, 7], dtype=torch.uint8).view(torch.bool)
    finding = compare_values(got, want, EXACT)
    assert finding.problem == "wrong_values"
    assert finding.first[0].got == "byte 7, no truth value"


def test_complex_values_are_compared_part_by_part() -> None:
    want = torch.tensor([1 + 2j, 3 - 1j])
    assert compare_values(want.clone() + 1e-4j, want, LOOSE).problem == "none"
    assert compare_values(want.conj().resolve_conj(), want, LOOSE).wrong_share == 1.0


@pytest.mark.parametrize("shape", [(), (0, 4), (1,)])
def test_scalars_and_empty_tensors_compare(shape: tuple[int, ...]) -> None:
    want = torch.ones(shape)
    assert compare_values(want.clone(), want, EXACT).problem == "none"
    assert compare_values(want + 1, want, EXACT).problem == ("wrong_values" if want.numel() else "none")


def test_large_answers_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE_ELEMENTS", 16)
    want = torch.randn(9, 11)
    got = want.clone()
    got[8, 10] += 1
    got[0, 3] += 1
    finding = compare_values(got, want, LOOSE)
    assert finding.wrong_share == pytest.approx(2 / 99)
    assert [mismatch.index for mismatch in finding.first] == [(0, 3), (8, 10)]


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (torch.float32, "float32"), (torch.float8_e4m3fn, "float8"), (torch.complex64, "complex"),
        (torch.int64, "integer"), (torch.uint8, "integer"), (torch.bool, "bool"),
    ],
)  # fmt: skip
def test_each_dtype_has_its_tolerance(dtype: torch.dtype, kind: str) -> None:
    assert dtype_kind(dtype) == kind


def mask(shape: tuple[int, ...], *places: tuple[slice | int, ...]) -> tuple[torch.Tensor, tuple[int, ...]]:
    flags = torch.zeros(shape, dtype=torch.bool)
    for place in places:
        flags[place] = True
    return flags.flatten(), shape


EVERYTHING = slice(None)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (mask((10, 8), (slice(7, 10), EVERYTHING)), "only in the last 3 of 10 rows, whole"),
        (mask((10, 8), (slice(7, 10), slice(0, 2))), "one tile: rows 7 to 9, columns 0 to 1"),
        (mask((64, 64), (slice(16, 32), slice(32, 48))), "one tile: rows 16 to 31, columns 32 to 47"),
        (mask((10, 8), (slice(7, 10), slice(0, None, 2))), "only in the last 3 of 10 rows"),
        (mask((10, 8), (slice(0, 1), EVERYTHING)), "only in the first 1 of 10 rows, whole"),
        (mask((10, 8), (EVERYTHING, slice(6, 8))), "only in the last 2 of 8 columns"),
        (mask((12, 8), (slice(3, None, 4), EVERYTHING)), "only in 3 of 12 rows, whole: every 4th from 3 on"),
        (mask((12, 8), (EVERYTHING, slice(1, None, 2))), "only in 4 of 8 columns: every 2nd from 1 on"),
        (mask((100,), (slice(90, 100),)), "only the last 10 of 100 elements"),
        (mask((100,), (slice(8, 16),)), "only 8 of 100 elements: one block from 8 to 15"),
        (mask((100,), (slice(3, None, 7),)), "only 14 of 100 elements: every 7th from 3 on"),
        (mask((10, 8), (1, EVERYTHING), (4, EVERYTHING), (5, EVERYTHING)), "whole rows: 3 of 10"),
        (mask((10, 8)), ""),
    ],
)
def test_where_the_wrong_elements_lie_is_put_into_words(
    flags: tuple[torch.Tensor, tuple[int, ...]], words: str
) -> None:
    assert describe_pattern(*flags) == words


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 6))
def test_any_mask_gets_a_phrase_or_none_without_failing(flags: list[bool], rows: int) -> None:
    usable = flags[: len(flags) // rows * rows] or flags
    shape = (rows, len(usable) // rows) if len(usable) >= rows and len(usable) % rows == 0 else (len(usable),)
    phrase = describe_pattern(torch.tensor(usable), shape)
    assert (phrase == "") or any(usable)


def test_a_telling_wrong_answer_is_recognised() -> None:
    x = torch.randn(3, 4)
    assert looks_like(torch.zeros(3, 4), [x]) == "zeros"
    assert looks_like(x.clone(), [x]) == "input"
    assert looks_like(torch.full((3, 4), 0.25), [x]) == "constant"
    assert looks_like(torch.randn(3, 4), [x]) == ""


def test_errors_as_small_as_those_of_half_precision_are_recognised() -> None:
    left, right = torch.randn(64, 64), torch.randn(64, 64)
    want = left @ right
    assert is_near((left.bfloat16() @ right.bfloat16()).float(), want)
    assert not is_near(torch.zeros_like(want), want)
    got = want.clone()
    got[-1] += 1e3
    assert not is_near(got, want), "a row that is wrong is no matter of precision"


def test_a_shifted_answer_is_found_whatever_the_shift() -> None:
    want = torch.arange(24.0).reshape(4, 6)
    for shift, dim in itertools.product((1, 2, 3), (0, 1)):
        assert compare_values(want.roll(shift, dim), want, LOOSE).problem == "wrong_values"


def test_the_absolute_part_grows_with_the_size_of_the_answer_but_not_with_a_few_huge_elements() -> None:
    want = torch.full((1000,), 1000.0)
    want[0] = 1e-3
    got = want.clone()
    got[0] += 5e-3
    loose = Tolerance(rtol=0.0, atol=1e-5)
    assert compare_values(got, want, loose).problem == "none"
    few = torch.full((1000,), 1e-3)
    few[:10] = 1e6
    got = few.clone()
    got[500] += 5e-3
    assert compare_values(got, few, loose).problem == "wrong_values"


def test_small_answers_keep_the_absolute_part_as_it_stands() -> None:
    want = torch.full((1000,), 1e-6)
    assert compare_values(want + 5e-6, want, Tolerance(rtol=0.0, atol=1e-5)).problem == "none"
    assert compare_values(want + 2e-5, want, Tolerance(rtol=0.0, atol=1e-5)).problem == "wrong_values"


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Remembers the most elements that one operation made, or summed: a sum of truth values copies them first."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outcome = func(*args, **(kwargs or {}))
        given = [one for one in args if isinstance(one, torch.Tensor)]
        memory = {one.untyped_storage().data_ptr() for one in given}
        made = [outcome] if isinstance(outcome, torch.Tensor) else []
        counted = (
            given if "sum" in str(func) else [one for one in made if one.untyped_storage().data_ptr() not in memory]
        )
        self.elements = max(self.elements, *(one.numel() for one in counted), 0)
        return outcome


def test_what_is_said_of_a_large_wrong_answer_takes_no_memory_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "PIECE_ELEMENTS", 64)
    monkeypatch.setattr(patterns, "SAMPLED_ELEMENTS", 64)
    want = torch.randn(64, 64)
    flags, shape = mask((64, 64), (slice(16, 32), slice(32, 48)))
    poison = draw_poison(torch.float32, random.Random(3))
    with Largest() as largest:
        assert is_near(want, want)
        assert describe_pattern(flags, shape)
    assert largest.elements <= 65
    with Largest() as largest:
        assert poison.untouched_share(want) == 0
    assert largest.elements <= want.numel(), "where it is compared it is one byte an element"

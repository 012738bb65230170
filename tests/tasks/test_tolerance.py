"""How far an answer may be from the reference follows from the reference's own error, between a floor and a cap."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tasks.model import Dtype, Tolerance
from kernelgate.tasks.tolerance import LIMITS, ROOM, OutputFacts, atol_of, rtol_of, scaled

DTYPES = sorted(LIMITS)
ERRORS = st.floats(0, 1e6)


def output(**changes: object) -> OutputFacts:
    facts = {
        "path": "",
        "dtype": "float32",
        "source": "calibrated",
        "rms": 1.0,
        "size": 0.7,
        "rtol": 1e-4,
        "atol": 1e-5,
    }
    return OutputFacts.model_validate({**facts, **changes})


@pytest.mark.parametrize("dtype", DTYPES)
@given(own=ERRORS)
def test_the_relative_part_never_leaves_floor_and_cap(dtype: Dtype, own: float) -> None:
    assert LIMITS[dtype].floor <= rtol_of(dtype, own) <= LIMITS[dtype].cap
    assert rtol_of(dtype, own) >= min(ROOM * own, LIMITS[dtype].cap)


@pytest.mark.parametrize("dtype", DTYPES)
@given(own=ERRORS, size=ERRORS, rms=ERRORS)
def test_the_absolute_part_is_never_more_than_the_cap_of_the_answers_size(
    dtype: Dtype, own: float, size: float, rms: float
) -> None:
    limits = LIMITS[dtype]
    assert limits.smallest <= atol_of(dtype, own, size, rms) <= max(limits.cap * rms, limits.smallest)


@given(own=st.floats(1e-8, 1e-3), scale=st.floats(1e-3, 1e3))
def test_an_answer_that_is_scaled_has_a_bound_that_is_scaled(own: float, scale: float) -> None:
    plain = atol_of("float32", own, 0.7, 1.0)
    assert atol_of("float32", own * scale, 0.7 * scale, scale) == pytest.approx(plain * scale)


def test_no_bound_is_a_bare_number_whatever_the_answer_is_like() -> None:
    assert atol_of("float32", 0.0, 1e-6, 1e-6) < 1e-10
    assert atol_of("float32", 0.0, 1e6, 1e6) == pytest.approx(10.0)


def test_a_reference_that_was_lucky_leaves_room_for_another_order_of_summation() -> None:
    assert rtol_of("float32", 0.0) == LIMITS["float32"].floor
    assert atol_of("float32", 0.0, 0.0, 1.0) == pytest.approx(ROOM * 2.0**-24)


def test_half_precision_inputs_are_further_off_than_the_floor_of_float32() -> None:
    assert LIMITS["float32"].floor < 2.0**-11 / 2
    assert LIMITS["float16"].floor >= 2 * 2.0**-11
    assert LIMITS["bfloat16"].floor >= 2 * 2.0**-8


@pytest.mark.parametrize(
    ("changes", "beyond"),
    [
        ({"own_rel": 1e-3, "own_abs": 1e-3}, False),
        ({"own_rel": 2e-2}, True),
        ({"own_abs": 2e-2}, True),
        ({"own_abs": 2e-2, "rms": 10.0}, False),
        ({"own_abs": 1e-40, "rms": 0.0}, False),
        ({"noise_rel": 1e-3, "noise_abs": 1e-3}, False),
        ({"noise_abs": 1e-7, "rms": 0.0}, True),
        ({"noise_rel": 2e-2, "noise_abs": 2e-2}, False),
        ({"noise_abs": 2.0}, True),
        ({"own_rel": 2e-2, "source": "stated"}, False),
    ],
)
def test_where_the_reference_or_any_honest_kernel_is_off_by_more_than_the_cap_nothing_is_told(
    changes: dict[str, object], beyond: bool
) -> None:
    assert output(**changes).beyond_cap is beyond


def test_only_a_calibrated_output_has_a_bound() -> None:
    bound = output(path="[1]").bound("small", "normal")
    assert bound is not None
    assert (bound.workload, bound.distribution, bound.output, bound.rtol, bound.atol) == (
        "small", "normal", "[1]", 1e-4, 1e-5,
    )  # fmt: skip
    assert output(source="stated").bound("small", "normal") is None


def test_what_float64_cannot_judge_has_no_limits_here() -> None:
    assert set(get_args(Dtype)) - set(LIMITS) == {"float64", "float8", "integer", "bool"}


def test_a_stated_tolerance_grows_with_large_answers_and_stays_for_small_ones() -> None:
    stated = Tolerance(rtol=1e-4, atol=1e-5)
    assert (scaled(stated, 100.0).atol, scaled(stated, 1e-3).atol) == (pytest.approx(1e-3), 1e-5)

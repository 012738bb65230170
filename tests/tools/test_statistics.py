import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.kit.statistics import geometric_mean, median, median_bounds

finite = st.floats(min_value=1e-6, max_value=1e6)


def test_the_interval_of_twelve_values_at_998_permille_is_their_range() -> None:
    values = [float(v) for v in range(12)]
    bounds = median_bounds(values, 0.998)
    assert bounds is not None
    assert (bounds.median, bounds.low, bounds.high) == (5.5, 0.0, 11.0)


@pytest.mark.parametrize(("count", "confidence", "rank"), [(10, 0.95, 2), (12, 0.95, 3), (24, 0.95, 7), (24, 0.998, 5)])
def test_the_rank_is_the_largest_that_keeps_the_promised_coverage(count: int, confidence: float, rank: int) -> None:
    bounds = median_bounds([float(v) for v in range(1, count + 1)], confidence)
    assert bounds is not None
    assert bounds.low == rank
    assert bounds.high == count + 1 - rank


def test_too_few_values_give_no_interval_rather_than_a_weak_one() -> None:
    assert median_bounds([1.0, 2.0, 3.0], 0.95) is None
    assert median_bounds([1.0] * 9, 0.998) is None


@given(st.lists(finite, min_size=12, max_size=60))
def test_the_interval_holds_the_median_and_lies_among_the_values(values: list[float]) -> None:
    bounds = median_bounds(values, 0.95)
    assert bounds is not None
    assert bounds.low <= bounds.median <= bounds.high
    assert bounds.low in values
    assert bounds.high in values


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random(7)
    trials = 4000
    hits = 0
    for _ in range(trials):
        # Skewed on purpose: the promise must not rest on a normal distribution.
        bounds = median_bounds([rng.expovariate(1.0) for _ in range(24)], 0.95)
        assert bounds is not None
        hits += bounds.low <= math.log(2) <= bounds.high
    assert hits / trials >= 0.95


@given(st.lists(finite, min_size=1, max_size=20))
def test_a_geometric_mean_lies_between_its_smallest_and_largest_value(values: list[float]) -> None:
    assert min(values) * (1 - 1e-9) <= geometric_mean(values) <= max(values) * (1 + 1e-9)


def test_no_values_have_neither_median_nor_mean() -> None:
    with pytest.raises(ValueError, match="no median"):
        median([])
    with pytest.raises(ValueError, match="no mean"):
        geometric_mean([])

"""What is made of wall clocks on a GPU: numbers in, numbers out."""

from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.worker.cuda_timing import (
    HOPELESS,
    LEAST_SLEEP_US,
    MOST_SLEEP_US,
    OUTSIDE_SLACK_US,
    Pace,
    Row,
    Side,
    Surroundings,
    becomes_quiet,
    block_lengths,
    outside_us,
)

AROUND = Surroundings(sleep_us=1_000.0, each_us=60.0, whole_us={3: 1_230.0, 9: 1_590.0})


def wall_us(calls: int, call_us: float) -> float:
    return 1_050.0 + calls * (60.0 + call_us)


def rows(call_us: float, delay_us: float = 0.0) -> list[Row]:
    """A block of 3 and of 9 calls; the short one made to last longer."""
    return [Row(3, wall_us(3, call_us) + delay_us), Row(9, wall_us(9, call_us))]


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_block_never_needs_more_entries_than_there_are(calls: int, entries: int) -> None:
    lengths = block_lengths(calls, entries)
    assert max(lengths) <= entries
    assert min(lengths) >= 1
    assert len(set(lengths)) == 1 or lengths == (min(lengths), 3 * min(lengths))


@given(st.floats(10.0, 10_000.0))
def test_sleep_flush_and_copies_fall_out_of_the_slope(call_us: float) -> None:
    assert outside_us(rows(call_us), AROUND, None) == pytest.approx(call_us)
    assert outside_us(rows(call_us), AROUND, AROUND.constant_us) == pytest.approx(call_us)


@given(st.floats(10.0, 1_000.0), st.floats(0.0, 5_000.0))
def test_a_drawn_out_short_block_gains_no_more_than_the_slack(call_us: float, delay_us: float) -> None:
    told = outside_us(rows(call_us, delay_us), AROUND, AROUND.constant_us)
    assert told >= call_us - OUTSIDE_SLACK_US / 9 - 1e-6


def test_single_calls_are_told_by_what_surrounds_them() -> None:
    around = Surroundings(sleep_us=1_000.0, each_us=0.0, whole_us={1: 1_110.0})
    seen = [Row(1, 1_110.0 + 3_000.0), Row(1, 1_110.0 + 3_100.0), Row(1, 1_110.0 + 9_000.0)]
    assert outside_us(seen, around, None) == pytest.approx(3_100.0)


def test_the_time_of_a_call_is_never_nothing() -> None:
    assert outside_us(rows(-70.0), AROUND, None) > 0


def paced(**enqueue_us: float) -> Pace:
    """After a first block of each side, which loads its kernels, and one more, of nine calls each."""
    pace = Pace()
    for side, block_us in enqueue_us.items():
        pace.note(cast("Side", side), 9, 1e6, covered=False)
        pace.note(cast("Side", side), 9, block_us, covered=True)
    return pace


def test_the_sleep_outlasts_the_slower_side() -> None:
    assert 1_800.0 < paced(baseline=450.0, candidate=1_800.0).sleep_us(9) < 5_000.0
    assert paced(baseline=450.0, candidate=9e6).sleep_us(9) == MOST_SLEEP_US


def test_a_first_block_that_loads_its_kernels_lengthens_no_sleep() -> None:
    pace = Pace()
    before_us = pace.sleep_us(9)
    pace.note("candidate", 9, 9e6, covered=False)
    assert pace.sleep_us(9) == before_us


def test_a_single_slow_block_lengthens_no_sleep() -> None:
    pace = paced(candidate=450.0)
    pace.note("candidate", 9, 450.0, covered=True)
    before_us = pace.sleep_us(9)
    pace.note("candidate", 9, 9e6, covered=True)
    assert pace.sleep_us(9) == before_us


def test_a_miss_that_shows_how_long_a_call_takes_is_not_doubled_on_top() -> None:
    pace, known = paced(baseline=450.0, candidate=450.0), paced(baseline=1_500.0, candidate=1_500.0)
    pace.note("candidate", 9, 1_500.0, covered=False)
    assert pace.sleep_us(9) == known.sleep_us(9)
    pace.note("candidate", 9, 1_500.0, covered=False)
    assert pace.sleep_us(9) > known.sleep_us(9), "that was no use"


def test_a_block_that_was_not_covered_is_measured_again_behind_a_longer_sleep() -> None:
    pace = paced(baseline=450.0, candidate=450.0)
    before_us = pace.sleep_us(9)
    pace.note("candidate", 9, 450.0, covered=False)
    assert pace.sleep_us(9) > before_us


def test_a_side_that_waits_for_the_device_itself_is_not_waited_for() -> None:
    pace = paced(baseline=450.0, candidate=450.0)
    for _ in range(HOPELESS):
        pace.note("candidate", 9, 9e6, covered=False)
    assert pace.hopeless("candidate")
    assert not pace.hopeless("baseline")
    assert LEAST_SLEEP_US < pace.sleep_us(9) < 2_000.0


def answers(*times_us: float) -> Callable[[], float]:
    coming = iter(times_us)
    return lambda: next(coming)


def test_a_device_is_quiet_once_it_has_answered_at_once_several_times_in_a_row() -> None:
    assert becomes_quiet(answers(40, 40, 40), 300, 0.0)
    assert becomes_quiet(answers(1500, 40, 40, 900, 40, 40, 40), 300, 60.0)


def test_a_device_that_never_answers_at_once_does_not_become_quiet() -> None:
    assert not becomes_quiet(lambda: 1_500.0, 300, 0.0)
    assert not becomes_quiet(answers(40, 40, 1_500), 300, 0.0), "two by chance do not do"

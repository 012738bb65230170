from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.worker.cpu_profile import Span, operators_of, profile_calls


def test_what_operators_call_is_taken_off_their_own_time() -> None:
    found = operators_of(
        [Span("to", 1, 0, 100), Span("copy_", 1, 20, 50), Span("fill_", 1, 30, 10), Span("to", 1, 100, 7)]
    )
    assert [(row.name, row.calls, row.self_us) for row in found] == [
        ("to", 2, 0.057), ("copy_", 1, 0.04), ("fill_", 1, 0.01),
    ]  # fmt: skip


def test_what_another_thread_runs_meanwhile_is_nobodys_part() -> None:
    found = operators_of([Span("one", 1, 0, 100), Span("other", 2, 10, 50)])
    assert {row.name: row.self_us for row in found} == {"one": 0.1, "other": 0.05}


def test_what_the_profiler_notes_of_itself_is_left_out() -> None:
    assert operators_of([Span("profiler::_record_function_enter_new", 1, 0, 9)]) == ()


@given(st.lists(st.builds(Span, st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 50), st.integers(0, 50))))
def test_whatever_overlaps_no_operator_has_less_than_no_time_in_all_and_shares_make_one(spans: list[Span]) -> None:
    rows = operators_of(spans)
    assert sum(row.calls for row in rows) == len(spans)
    assert not rows or abs(sum(row.share for row in rows) - 1) < 1e-9 or all(row.self_us == 0 for row in rows)


def test_the_sums_are_those_of_torchs_own_table() -> None:
    x = torch.ones(300, 300)
    with torch.autograd.profiler.profile(use_cpu=True) as profiler:
        torch.softmax(x.to(torch.float64).sum(0), -1)
    events = profiler.kineto_results.events()
    spans = [Span(one.name(), one.start_thread_id(), one.start_ns(), one.duration_ns()) for one in events]
    rows, table = operators_of(spans), profiler.key_averages()
    assert {row.name: row.calls for row in rows} == {row.key: row.count for row in table}
    theirs = {row.key: row.self_cpu_time_total for row in table}
    assert {row.name: row.self_us for row in rows} == pytest.approx(theirs, abs=0.1)


def test_a_call_is_profiled_with_its_operators() -> None:
    told = profile_calls(torch.sigmoid, {0: ((torch.ones(9),), {})}, [0, 0], lambda: None)
    assert [(row.name, row.calls) for row in told.operators] == [("aten::sigmoid", 2)]
    assert told.call_us > 0


@pytest.mark.parametrize(
    ("forward", "least", "most"),
    [
        (lambda x: torch.softmax(x.double(), -1).float(), 0.1, 1.0),
        (lambda x: x.sum(-1, dtype=torch.float64).float(), 0.1, 1.0),
        (lambda x: torch.softmax(x.half(), -1).float() * 2.0, 0.0, 0.0),
        (lambda x: torch.softmax(x, -1), 0.0, 0.0),
    ],
    ids=["a detour", "a sum that copies its input", "a factor that is a number", "none"],
)
def test_the_share_of_float64_counts_tensors_alone(forward: Any, least: float, most: float) -> None:
    told = profile_calls(forward, {0: ((torch.ones(300, 300),), {})}, [0, 0], lambda: None)
    assert least <= told.doubles_share <= most

"""The referee's side of counting, over real processes that stand in for the one that asks CUPTI."""

import math
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.worker import counters
from kernelgate.tools.worker.counters import Counting, values_of

READY = 'print(\'{"ready": "GH100", "counted": ["active"]}\', flush=True)'
ARMED = "input(); print('{\"armed\": true}', flush=True)"
BEGUN = "input(); print('{\"begun\": true}', flush=True)"
VALUES = (
    'input(); print(\'{"samples": 9, "window_us": 800.0, "means": {"active": 50.0, "dram_read": 25.0,'
    ' "busiest_cycles": 90.0, "mean_cycles": 50.0},'
    ' "sums": {"active": 450.0, "blocks": 640.0, "l1_sectors": 32.0}}\', flush=True)'
)
STAYS = "import time; time.sleep(60)"


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Counting]]:
    """Counting over a program of these lines."""
    made: list[Counting] = []

    def start(*lines: str, folder: str = "") -> Counting:
        monkeypatch.setattr(counters, "PROGRAM", "\n".join(lines))
        made.append(Counting(folder))
        made[-1].arm()
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_what_was_counted_comes_as_shares_and_for_each_call(counting: Callable[..., Counting]) -> None:
    window = counting(READY, ARMED, BEGUN, VALUES)
    assert window.begin()
    window.end(calls=64, call_us=12.5)
    counted = window.read()
    assert counted is not None
    assert counted.values == {
        "active": 0.5, "dram_read": 0.25, "busy": 0.9, "blocks": 10.0, "l1_sectors": 0.5,
    }  # fmt: skip
    assert (counted.calls, counted.call_us, window.problem) == (64, 12.5, "")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (('print(\'{"problem": "cupti-python is not installed", "kind": "missing"}\')',), "pip install --target /else"),
        (('print(\'{"problem": "only administrators", "kind": "permission"}\')',), "NVreg_RestrictProfilingToAdmin"),
        (('print(\'{"problem": "no such chip", "kind": "whatever"}\')',), "no such chip"),
        (("raise SystemExit(3)",), "its process ended"),
        (("print('nonsense', flush=True)", STAYS), "said something else"),
        (("print('[]', flush=True)", STAYS), "said something else"),
        (("print('x' * 200_000, flush=True)", STAYS), "its process ended"),
        ((STAYS,), "did not answer in time"),
    ],
)
def test_without_counters_one_sentence_says_what_is_missing(
    counting: Callable[..., Counting], monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...], said: str
) -> None:
    if said == "did not answer in time":
        monkeypatch.setattr(counters, "READY_S", 0.05)
    window = counting(*lines, folder="/else")
    assert not window.begin()
    window.end(1, 1.0)
    assert window.read() is None
    assert said in window.problem
    assert window.problem.startswith("no counters were read: ")


@pytest.mark.parametrize(
    "lines", [(READY,), (READY, ARMED, BEGUN), (READY, ARMED, BEGUN, "input(); raise SystemExit(139)")]
)
def test_a_process_that_dies_on_its_way_costs_the_counters_alone(
    counting: Callable[..., Counting], lines: tuple[str, ...]
) -> None:
    window = counting(*lines)
    window.begin()
    window.end(1, 1.0)
    assert window.read() is None
    assert "its process ended" in window.problem


def test_a_window_in_which_the_device_had_no_work_has_no_counters(counting: Callable[..., Counting]) -> None:
    window = counting(READY, ARMED, BEGUN, "input(); print('{\"samples\": 9}', flush=True)")
    assert window.begin()
    window.end(1, 1.0)
    assert window.read() is None
    assert "no work" in window.problem


def test_one_process_counts_window_after_window(counting: Callable[..., Counting]) -> None:
    window = counting(READY, *(ARMED, BEGUN, VALUES) * 4)
    process = window._process
    for _ in range(3):
        assert window.begin()
        window.end(calls=64, call_us=12.5)
        assert window.read() is not None
        window.finish()
        window.arm()
    assert window._process is process


def test_a_call_that_ends_before_its_window_leaves_nothing_for_the_next(counting: Callable[..., Counting]) -> None:
    window = counting(READY, ARMED, BEGUN, VALUES)
    window.finish()
    window.arm()
    assert window.begin()
    window.end(1, 1.0)
    assert window.read() is not None


def test_a_window_that_was_not_read_is_given_up_with_its_process(counting: Callable[..., Counting]) -> None:
    window = counting(READY, ARMED, BEGUN, STAYS)
    assert window.begin()
    process = window._process
    window.finish()
    assert process is not None
    assert process.returncode is not None


def test_after_a_crash_the_next_window_has_a_new_process(
    counting: Callable[..., Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    window = counting("raise SystemExit(139)")
    assert not window.begin()
    monkeypatch.setattr(counters, "PROGRAM", "\n".join((READY, ARMED, BEGUN, VALUES)))
    window.arm()
    assert window.begin()
    assert window.problem == ""


def test_what_is_missing_for_good_is_said_again_without_another_try(
    counting: Callable[..., Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    window = counting('print(\'{"problem": "cupti-python is not installed", "kind": "missing"}\', flush=True)')
    assert not window.begin()
    monkeypatch.setattr(counters, "PROGRAM", STAYS)
    window.arm()
    assert not window.begin()
    assert "not installed" in window.problem


def test_the_real_program_says_what_this_host_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "READY_S", 30.0)
    window = Counting("/nowhere")
    window.arm()
    try:
        assert not window.begin()
        assert "cupti-python is not installed" in window.problem or "libcuda" in window.problem
    finally:
        window.close()


def test_a_closed_window_leaves_no_process(counting: Callable[..., Counting]) -> None:
    window = counting(STAYS)
    process = window._process
    assert process is not None
    window.close()
    assert process.returncode is not None


def test_an_interpreter_that_cannot_start_is_a_problem_and_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    window = Counting("")
    window.arm()
    assert not window.begin()
    assert "did not start" in window.problem


numbers = st.floats(0, 1e12) | st.just(0.0)


@given(st.dictionaries(st.sampled_from(["active", "mean_cycles", "busiest_cycles", "l2"]), numbers))
def test_values_are_finite_whatever_was_counted(means: dict[str, float]) -> None:
    values = values_of(means, {"blocks": 4.0}, 2)
    assert all(math.isfinite(value) and value >= 0 for value in values.values())
    assert values["blocks"] == 2.0

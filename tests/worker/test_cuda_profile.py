from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.worker.cuda_profile import Timeline, profile_calls, summed_up, timeline_of


def kernel(name: str, begin_us: float, long_us: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": begin_us, "dur": long_us, "args": arguments}


def host(name: str) -> dict[str, Any]:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": 0.0, "dur": 1.0, "args": {}}


ROWS = {"grid": [4096, 2, 1], "block": [128, 1, 1], "registers per thread": 30, "shared memory": 64}


def test_kernels_are_summed_by_name_with_the_launch_of_the_first_largest_share_first() -> None:
    fill = {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 90.0, "dur": 1.0}
    found = timeline_of({"traceEvents": [kernel("a", 0, 2, **ROWS), kernel("b", 10, 9), kernel("a", 20, 3), fill]})
    rows = found.operators()
    assert [(row.name, row.calls, row.self_us) for row in rows] == [("b", 1, 9), ("a", 2, 5), ("Memset (Device)", 1, 1)]
    assert rows[0].launch is None
    assert rows[1].launch is not None
    assert rows[1].launch.model_dump() == {"blocks": 8192, "threads": 128, "registers": 30, "shared_bytes": 64}
    assert sum(row.share for row in rows) == 1


def test_work_that_overlaps_keeps_the_device_busy_once() -> None:
    events = [kernel("a", 0, 10), kernel("b", 5, 10), kernel("c", 30, 5)]
    assert timeline_of({"traceEvents": events}).busy_us() == 20


def test_each_call_that_waits_for_the_device_is_counted_and_others_are_not() -> None:
    names = ("cudaLaunchKernel", "cudaStreamSynchronize", "cuStreamSynchronize", "cudaMemcpyAsync", "cudaMemcpy")
    operators = {"ph": "X", "cat": "cpu_op", "name": "cudaMemcpy", "ts": 0.0, "dur": 1.0}
    found = timeline_of({"traceEvents": [*map(host, names), operators, {"ph": "M", "name": "process_name"}]})
    assert (found.waits, found.asked) == (3, 5)
    assert found.operators() == ()


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3))))
def test_the_busy_time_is_no_longer_than_the_sum_nor_than_the_span(spans: list[tuple[float, float]]) -> None:
    found = Timeline(spans=[(begin, begin + long) for begin, long in spans])
    longest = max((end for _, end in found.spans), default=0.0)
    assert found.busy_us() <= min(longest, sum(end - begin for begin, end in found.spans)) + 1e-3


class Watcher:
    """In place of torch's profiler, which needs a GPU to trace one."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.kineto_results = fails, SimpleNamespace(events=list)

    def __enter__(self) -> None:
        if self.fails:
            raise RuntimeError("CUPTI is in use")

    def __exit__(self, *_: object) -> None:
        self.ended = True

    def export_chrome_trace(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"traceEvents": []}')


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Profile calls of a forward under such a profiler."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def profile(forward: Any, *, fails: bool = False) -> Any:
        watcher = Watcher(fails)
        monkeypatch.setattr(torch.autograd.profiler, "profile", lambda **_: watcher)
        timer: Any = SimpleNamespace(time_block=lambda *_: SimpleNamespace(samples_ns=[1000.0]))
        try:
            return profile_calls(timer, lambda *_: forward(watcher), {0: ((), {})}, [0, 0], lambda: None), watcher
        except ValueError as error:
            return error, watcher

    return profile


def test_what_forward_raises_under_the_profiler_is_the_candidates_and_the_profiler_is_ended_first(watched: Any) -> None:
    calls: list[int] = []

    def shy(_: Watcher) -> None:
        calls.append(1)
        if len(calls) > 2:  # the calls without the profiler went well
            raise ValueError("not while I am watched")

    said, watcher = watched(shy)
    assert (str(said), watcher.ended) == ("not while I am watched", True)


def test_a_profiler_that_does_not_start_is_no_fault_of_the_candidate(watched: Any) -> None:
    said, _ = watched(lambda _: None, fails=True)
    assert said.note == "The profiler could not run here: RuntimeError: CUPTI is in use"


def test_a_profiler_that_sees_nothing_says_so(watched: Any) -> None:
    said, _ = watched(lambda _: None)
    assert (said.operators, "saw nothing" in said.note) == ((), True)


def event(name: str, device: str, begin_us: float, long_us: float, *, noted: bool = False) -> Any:
    """As torch's profiler keeps one."""
    return SimpleNamespace(
        name=lambda: name, device_type=lambda: f"DeviceType.{device}", is_user_annotation=lambda: noted,
        start_ns=lambda: int(begin_us * 1e3), duration_ns=lambda: int(long_us * 1e3),
    )  # fmt: skip


def test_of_a_trace_that_is_too_long_to_be_written_the_devices_work_is_summed_up() -> None:
    events = [
        event("aten::add", "CPU", 0, 50), event("add", "CUDA", 10, 4), event("add", "CUDA", 12, 4),
        event("forward", "CUDA", 0, 90, noted=True), event("mul", "CUDA", 30, 1),
    ]  # fmt: skip
    found = summed_up(SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events)))
    assert [(row.name, row.calls, row.self_us) for row in found.operators()] == [("add", 2, 8.0), ("mul", 1, 1.0)]
    assert found.busy_us() == 7

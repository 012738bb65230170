from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.worker.cuda_profile import Timeline, timeline_of


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

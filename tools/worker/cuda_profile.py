"""How a candidate's process profiles itself on a GPU: calls back to back, and torch's profiler for what the device ran.

All that it reports is a claim: the candidate's code runs in the same process.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import torch

from kernelgate.tools.kit.evidence import Launch, Operator
from kernelgate.tools.kit.statistics import median
from kernelgate.tools.worker import protocol
from kernelgate.tools.worker.cuda_timing import FIRST_ENQUEUE_US, CudaTimer
from kernelgate.tools.worker.timing import Arguments, dropped

MOST_EVENTS: Final = 100_000
"""Of a trace; one that is longer (tens of thousands of launches a call) is summed up without launches and waits."""
ON_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
OUR_WAITS: Final = 3
"""In a trace of calls that do not wait: our own at its end, and two of the profiler, as seen on an H200."""
OF_THE_HOST: Final = ("cuda_runtime", "cuda_driver")
WAITING: Final = (
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy",
    "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyDtoH_v2",
)  # fmt: skip
"""Calls of CUDA that return once the device is done."""


def steady_calls(
    forward: Callable[..., Any], pool: Mapping[int, Arguments], order: Sequence[int], before: Callable[[], None]
) -> protocol.Steadied:
    """Calls back to back, as a program makes them: without a flush between them, and without a profiler."""
    host_ns = 0
    with torch.no_grad():
        torch.cuda.synchronize()
        start = perf_counter_ns()
        for index in order:
            positional, named = pool[index]
            before()
            called = perf_counter_ns()
            forward(*positional, **named)
            host_ns += perf_counter_ns() - called
        torch.cuda.synchronize()
        wall_ns = perf_counter_ns() - start
    return protocol.Steadied(call_us=wall_ns / 1e3 / len(order), host_us=host_ns / 1e3 / len(order))


def profile_calls(
    timer: CudaTimer,
    forward: Callable[..., Any],
    pool: Mapping[int, Arguments],
    order: Sequence[int],
    before: Callable[[], None],
) -> protocol.Profiled:
    """Time by kernel over some calls, and the time of a call without the profiler, µs.

    Where the profiler cannot work here, the answer has no kernels and a note that says why. What `forward` raises under
    it is raised again: that is the candidate's, though it went well without.
    """
    times = timer.time_block(forward, pool, order, before, dropped, FIRST_ENQUEUE_US * len(order))
    call_us = median(times.samples_ns) / 1e3
    steady = steady_calls(forward, pool, order, before)
    raised: list[Exception] = []

    def all_calls() -> None:
        try:
            for index in order:
                positional, named = pool[index]
                forward(*positional, **named)
        except Exception as error:  # noqa: BLE001  whatever it is, the profiler is ended first
            raised.append(error)

    try:
        seen = _traced(all_calls)
    except Exception as error:  # noqa: BLE001  whatever it is, the calls themselves went well above
        note = f"The profiler could not run here: {type(error).__name__}: {error}"
        return protocol.Profiled(call_us=call_us, operators=(), note=note[: protocol.MAX_ERROR_CHARS])
    if raised:
        raise raised[0]
    rows = seen.operators()
    return protocol.Profiled(
        call_us=call_us,
        operators=rows[: protocol.MAX_OPERATORS],
        rows=len(rows),
        span_us=steady.call_us,
        busy_us=seen.busy_us() / len(order),
        host_us=steady.host_us,
        waits=max(0, seen.waits - OUR_WAITS) / len(order),
        note="" if rows or seen.asked else "The profiler saw nothing: this host may not let it trace the GPU.",
    )


@dataclass
class _Row:
    """Of one kernel, copy or fill."""

    calls: int = 0
    self_us: float = 0.0
    launch: Launch | None = None


@dataclass
class Timeline:
    """What the device ran, in order."""

    rows: dict[str, _Row] = field(default_factory=dict[str, _Row])
    spans: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Begin and end, µs."""
    waits: int = 0
    asked: int = 0
    """Calls of CUDA by the host: there is our own wait at least, where the profiler sees anything."""

    def operators(self) -> tuple[Operator, ...]:
        """Largest share first."""
        total = sum(row.self_us for row in self.rows.values()) or 1.0
        ordered = sorted(self.rows.items(), key=lambda item: -item[1].self_us)
        return tuple(
            Operator(
                name=name[: protocol.MAX_NAME_CHARS], calls=row.calls, self_us=row.self_us,
                share=row.self_us / total, launch=row.launch,
            )
            for name, row in ordered
        )  # fmt: skip

    def busy_us(self) -> float:
        """Time in which anything ran; what overlaps counts once."""
        total, reached = 0.0, 0.0
        for begin, end in sorted(self.spans):
            total += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return total


def _traced(all_calls: Callable[[], None]) -> Timeline:
    # Not torch.profiler, which imports the compiler; this is what it stands on.
    profiler: Any = torch.autograd.profiler.profile(use_cpu=True, use_device="cuda", use_kineto=True)
    with profiler, torch.no_grad():
        all_calls()
        torch.cuda.synchronize()
    if len(profiler.kineto_results.events()) > MOST_EVENTS:
        return summed_up(profiler)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        return timeline_of(json.loads(Path(file.name).read_text(encoding="utf-8", errors="replace")))


def timeline_of(trace: Mapping[str, Any]) -> Timeline:
    """The device's work in a trace that torch's profiler wrote for Chrome, µs."""
    found = Timeline()
    for event in trace["traceEvents"]:
        category = event.get("cat")
        if category in OF_THE_HOST:
            found.asked += 1
            found.waits += event["name"] in WAITING
        elif category in ON_DEVICE:
            row = found.rows.setdefault(str(event["name"]), _Row())
            row.calls += 1
            row.self_us += float(event["dur"])
            found.spans.append((float(event["ts"]), float(event["ts"]) + float(event["dur"])))
            if row.launch is None and category == "kernel":
                row.launch = _launch_of(event.get("args", {}))
    return found


def _launch_of(arguments: Mapping[str, Any]) -> Launch | None:
    if "grid" not in arguments or "block" not in arguments:
        return None
    blocks, threads = (starmap(max, ((0, int(size)) for size in arguments[name])) for name in ("grid", "block"))
    return Launch(
        blocks=_product(blocks), threads=_product(threads),
        registers=int(arguments.get("registers per thread", 0)),
        shared_bytes=int(arguments.get("shared memory", 0)),
    )  # fmt: skip


def _product(sizes: Any) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def summed_up(profiler: Any) -> Timeline:
    """The device's work alone, of a trace that is too long to be written and read: no launches, and no waits."""
    found = Timeline()
    # Not the profiler's own sums, key_averages: they take some 50 µs an event, which the candidate pays.
    for event in profiler.kineto_results.events():
        if str(event.device_type()).endswith("CUDA") and not event.is_user_annotation():
            begin_us, long_us = event.start_ns() / 1e3, event.duration_ns() / 1e3
            row = found.rows.setdefault(str(event.name()), _Row())
            row.calls += 1
            row.self_us += long_us
            found.spans.append((begin_us, begin_us + long_us))
    return found

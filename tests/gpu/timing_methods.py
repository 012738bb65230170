"""The same call timed by several methods in one process: `python timing_methods.py KERNEL SECONDS`. Prints JSON lines.

Each line is one reading: `method`, `repeat`, `value` (µs a call; of `ours_pairs` a ratio), `gpu_s` (how long the device
was held), `samples`. The methods take turns, so that all see the same drift. The loops are written for this project
after what the tools' documentation says that they do; only `triton.testing.do_bench` is called itself.
"""

import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpu_path as gpu_path  # before the package
import torch

from kernelgate.tools.worker import cuda_driver, cuda_timing
from kernelgate.tools.worker.cuda_timing import CudaTimer

REPEATS = 5
ENTRIES = 9
"""Inputs that our blocks rotate over."""
BLOCKS, CALLS = 24, 9
FILL_BYTES = 256 << 20
"""KernelBench writes so much before each of its trials."""
TRIALS, WARM_UPS, DISCARDED = 100, 3, 1
"""KernelBench's defaults: mean of so many trials."""
STANDARD_ERROR = 0.005
"""A cold measurement of nvbench's kind ends when the mean is known as well as this ..."""
FEWEST, MOST_S = 10, 3.0
"""... after at least so many samples, or so many seconds. Its own defaults, 0.5 s of samples and 15 s, cost more."""
HOT_S = 0.5
BLOCK_US = 200.0
"""What holds the stream until the work behind it is enqueued."""
ACTIVITY_CALLS = 30


@dataclass(frozen=True)
class Reading:
    """What one method said once."""

    value: float
    samples: int


@dataclass
class Bench:
    """One call on several inputs, and what the methods need beside it."""

    call: Callable[..., torch.Tensor]
    inputs: list[tuple[torch.Tensor, ...]]

    def __post_init__(self) -> None:
        self.timer = CudaTimer(cuda_driver.Driver())
        self.fill = torch.empty(FILL_BYTES // 4, dtype=torch.int32, device=cuda_timing.CUDA_DEVICE)
        self.cache = torch.empty(cuda_timing.cache_bytes(), dtype=torch.uint8, device=cuda_timing.CUDA_DEVICE)
        self.place = self.call(*self.inputs[0]).clone()
        self.sleep_us = 1_000.0

    def once(self) -> None:
        """The call on the first inputs."""
        self.call(*self.inputs[0])


def sleep(us: float) -> None:
    torch.cuda._sleep(int(us * cuda_timing.CYCLES_PER_US))


def event_us(begin: Any, end: Any) -> float:
    return float(begin.elapsed_time(end)) * 1e3


def do_bench(bench: Bench) -> Reading:
    """Triton's, its median, defaults otherwise."""
    from triton.testing import do_bench as measure

    return Reading(float(measure(bench.once, return_mode="median")) * 1e3, 0)


def kernelbench(bench: Bench) -> Reading:
    """Events around single calls, a large fill before each; mean."""
    for _ in range(WARM_UPS):
        bench.once()
    samples: list[float] = []
    begin, end = cuda_timing.new_event(), cuda_timing.new_event()
    for _ in range(TRIALS + DISCARDED):
        torch.cuda.synchronize()
        bench.fill.fill_(42)
        begin.record()
        bench.once()
        end.record()
        torch.cuda.synchronize()
        samples.append(event_us(begin, end))
    return Reading(statistics.fmean(samples[DISCARDED:]), TRIALS)


def known_well(samples: Sequence[float]) -> bool:
    """Whether the standard error of the mean is small beside the mean."""
    if len(samples) < FEWEST:
        return False
    return statistics.stdev(samples) / math.sqrt(len(samples)) <= STANDARD_ERROR * statistics.fmean(samples)


def nvbench_cold(bench: Bench) -> Reading:
    """A cache's size cleared, the stream held until all is enqueued, events; mean of enough samples."""
    bench.once()
    samples: list[float] = []
    begin, end = cuda_timing.new_event(), cuda_timing.new_event()
    stop_s = time.perf_counter() + MOST_S
    while not known_well(samples) and time.perf_counter() < stop_s:
        bench.cache.zero_()
        sleep(BLOCK_US)
        begin.record()
        bench.once()
        end.record()
        torch.cuda.synchronize()
        samples.append(event_us(begin, end))
    return Reading(statistics.fmean(samples), len(samples))


def nvbench_hot(bench: Bench) -> Reading:
    """Calls one behind the other without clearing anything; total by count."""
    begin, end = cuda_timing.new_event(), cuda_timing.new_event()
    calls, total_us, done, batch = 0, 0.0, 0.0, 16
    stop_s = time.perf_counter() + MOST_S
    while done < HOT_S * 1e6 and time.perf_counter() < stop_s:
        sleep(BLOCK_US + 10 * batch)
        begin.record()
        for _ in range(batch):
            bench.once()
        end.record()
        torch.cuda.synchronize()
        took_us = event_us(begin, end)
        calls, total_us, done = calls + batch, total_us + took_us, done + took_us
        batch = min(1000, 2 * batch)
    return Reading(total_us / calls, calls)


def block_us(bench: Bench) -> float:
    """Median of one of our blocks; the sleep is as long as enqueueing it took, and more."""
    order = random.sample(range(len(bench.inputs)), min(CALLS, len(bench.inputs)))
    pool = {index: (bench.inputs[index], {}) for index in order}

    def nothing() -> None:
        """No buffers are put back."""

    def kept(_: int, output: Any) -> None:
        bench.place.copy_(output)

    for _ in range(3):
        times = bench.timer.time_block(bench.call, pool, order, nothing, kept, bench.sleep_us)
        if times.covered:
            break
        bench.sleep_us = min(cuda_timing.MOST_SLEEP_US, max(2 * bench.sleep_us, 1.5 * times.enqueue_us))
    return statistics.median(times.samples_ns) / 1e3


def ours(bench: Bench) -> Reading:
    """Blocks behind a sleep over changing inputs: one side of what precise_time does."""
    return Reading(statistics.median(block_us(bench) for _ in range(BLOCKS)), BLOCKS * CALLS)


def ours_pairs(bench: Bench) -> Reading:
    """What precise_time compares: the median ratio of neighbouring blocks, here of the same call, so 1."""
    return Reading(statistics.median(block_us(bench) / block_us(bench) for _ in range(BLOCKS)), 2 * BLOCKS * CALLS)


def kernels_of(work: Callable[[], None]) -> list[tuple[str, float, float]]:
    """Name, start and length (µs) of what the device itself recorded (CUPTI's activity, through torch's profiler)."""
    profiler: Any = torch.autograd.profiler.profile(use_cpu=True, use_device="cuda", use_kineto=True)
    with profiler:
        work()
        torch.cuda.synchronize()
    return sorted(
        ((str(one.name), float(one.time_range.start), float(one.time_range.elapsed_us()))
         for one in profiler.function_events if str(one.device_type).endswith("CUDA")),
        key=lambda one: one[1],
    )  # fmt: skip


def activity(bench: Bench) -> Reading:
    """Time of the call's kernels on a cleared cache, by the device's own record: what the others should read."""

    def cold() -> None:
        sleep(5_000.0)
        for number in range(ACTIVITY_CALLS):
            bench.fill.zero_()
            bench.call(*bench.inputs[number % len(bench.inputs)])

    bench.once()
    own = {name for name, _, _ in kernels_of(bench.once)}
    lengths = [length for name, _, length in kernels_of(cold) if name in own]
    each = len(lengths) // ACTIVITY_CALLS
    if each == 0 or len(lengths) % ACTIVITY_CALLS:
        raise RuntimeError(f"{len(lengths)} kernels were recorded of {ACTIVITY_CALLS} calls")
    calls = [sum(lengths[first : first + each]) for first in range(0, len(lengths), each)]
    return Reading(statistics.median(calls), ACTIVITY_CALLS)


METHODS: dict[str, Callable[[Bench], Reading]] = {
    "do_bench": do_bench, "kernelbench": kernelbench, "nvbench_cold": nvbench_cold, "nvbench_hot": nvbench_hot,
    "ours": ours, "ours_pairs": ours_pairs, "activity": activity,
}  # fmt: skip


def drawn(entries: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[tuple[torch.Tensor, ...]]:
    device = cuda_timing.CUDA_DEVICE
    return [tuple(torch.randn(shape, device=device, dtype=dtype) for shape in shapes) for _ in range(entries)]


def bench_of(kernel: str, entries: int = ENTRIES) -> Bench:
    """One of `KERNELS`, with inputs of its own for each call of a block."""
    if kernel == "softmax_4096":
        return Bench(lambda x: torch.softmax(x, -1), drawn(entries, (4096, 4096)))
    if kernel == "matmul_2048_fp16":
        return Bench(torch.matmul, drawn(entries, (2048, 2048), (2048, 2048), dtype=torch.float16))
    count = (64 << 20) // 4 if kernel == "add_64mb" else (64 << 10) // 4
    return Bench(torch.add, drawn(entries, (count,), (count,)))


def run(bench: Bench, seconds: float, tell: Callable[[dict[str, Any]], None]) -> None:
    """All methods in turn, `REPEATS` times or until the time is up; one that fails is told and goes on."""
    stop_s = time.perf_counter() + seconds
    for repeat in range(-1, REPEATS):  # the first time around warms up and is not told
        for name, method in METHODS.items():
            if time.perf_counter() > stop_s:
                return
            torch.cuda.synchronize()
            began_s = time.perf_counter()
            found: dict[str, Any] = {"method": name, "repeat": repeat}
            try:
                reading = method(bench)
                found |= {"value": reading.value, "samples": reading.samples}
            except Exception as error:  # noqa: BLE001  written down; the others go on
                found["fault"] = f"{type(error).__name__}: {error}"[:500]
            torch.cuda.synchronize()
            found["gpu_s"] = time.perf_counter() - began_s
            if repeat >= 0:
                tell(found)


def main(kernel: str, seconds: str) -> None:
    """Print a line for each reading as soon as it is there."""
    cuda_driver.start_cuda()
    with torch.no_grad():
        run(bench_of(kernel), float(seconds), lambda found: print(json.dumps(found), flush=True))  # noqa: T201  the answer


if __name__ == "__main__":
    main(*sys.argv[1:])

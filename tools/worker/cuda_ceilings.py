"""What a GPU can do at best, measured with events: copies through memory and through the cache, a matrix product.

And the least that events read: with nothing between them, and with the smallest kernel.
"""

from collections.abc import Callable
from typing import Final

import torch

from kernelgate.tools.kit.facts import Ceilings
from kernelgate.tools.kit.statistics import median
from kernelgate.tools.worker.cuda_driver import CUDA_DEVICE
from kernelgate.tools.worker.cuda_timing import CYCLES_PER_US, cache_bytes, new_event
from kernelgate.tools.worker.timing import nothing

COPY_BYTES: Final = 1 << 30
"""Far larger than any cache; less where memory is short."""
CACHED_SHARE: Final = 4
"""A copy of so small a part of the cache stays in it with its source."""
CACHED_COPIES: Final = 50
REPEATS: Final = 5
SLEEP_US: Final = 1_000
READINGS: Final = 100
"""Of a floor, which is their median."""
READINGS_SLEEP_US: Final = 5_000
"""The device sleeps while they are enqueued: three commands each."""
MATMUL_SIZES: Final = {torch.float16: 8192, torch.bfloat16: 8192}
"""Large enough for the full rate; others take `MATMUL_SIZE`, a few milliseconds each."""
MATMUL_SIZE: Final = 4096


def measure_cuda_ceilings(dtype: torch.dtype) -> Ceilings:
    """Bandwidths (read plus write), and the rate of a product of this dtype under the process's precision policy.

    About 0.1 s. Dtypes that have no product of their own are measured as float32.
    """
    free, _ = torch.cuda.mem_get_info()
    with torch.no_grad():
        copy_gb_s = _copy_gb_s(min(COPY_BYTES, free // 8), 1)
        cache_gb_s = _copy_gb_s(max(1 << 20, cache_bytes() // CACHED_SHARE), CACHED_COPIES)
        matmul_gflop_s = _matmul_gflop_s(dtype if dtype.itemsize > 1 else torch.float32)
        word = torch.zeros(1, device=CUDA_DEVICE)
        empty_us, launch_us = _reading_us(nothing), _reading_us(lambda: word.zero_())
    torch.cuda.empty_cache()
    return Ceilings(
        copy_gb_s=copy_gb_s, cache_gb_s=cache_gb_s, matmul_gflop_s=matmul_gflop_s, empty_us=empty_us,
        launch_us=launch_us,
    )  # fmt: skip


def _reading_us(work: Callable[[], object]) -> float:
    """Of some readings behind a sleeping kernel, with the work between their events."""
    pairs = [(new_event(), new_event()) for _ in range(READINGS)]
    work()
    torch.cuda.synchronize()
    _sleep(READINGS_SLEEP_US)
    for begin, end in pairs:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return median([begin.elapsed_time(end) for begin, end in pairs]) * 1e3


def _sleep(sleep_us: int) -> None:
    torch.cuda._sleep(sleep_us * CYCLES_PER_US)  # type: ignore[no-untyped-call]  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]  # torch has no public one


def _copy_gb_s(size_bytes: int, copies: int) -> float:
    source = torch.ones(size_bytes // 4, device=CUDA_DEVICE)
    target = torch.zeros_like(source)
    best_s = _best_s(lambda: target.copy_(source), copies)
    return 2 * source.numel() * 4 * copies / best_s / 1e9


def _matmul_gflop_s(dtype: torch.dtype) -> float:
    size = MATMUL_SIZES.get(dtype, MATMUL_SIZE)
    # Random values: on zeros some cards run faster than any real input lets them.
    left, right = (torch.randn(size, size, device=CUDA_DEVICE).to(dtype) for _ in range(2))
    return 2 * size**3 / _best_s(lambda: torch.mm(left, right), 1) / 1e9


def _best_s(work: Callable[[], object], times: int) -> float:
    """Shortest time of so many calls in a row, enqueued behind a sleeping kernel."""
    work()
    best_ms = float("inf")
    for _ in range(REPEATS):
        begin, end = new_event(), new_event()
        _sleep(SLEEP_US)
        begin.record()
        for _ in range(times):
            work()
        end.record()
        torch.cuda.synchronize()
        best_ms = min(best_ms, begin.elapsed_time(end))
    return best_ms / 1e3

"""What the device can do at best, measured: the bound that nothing honest beats, and the least that a timing reads."""

import time
from collections.abc import Callable
from typing import Final

import torch

from kernelgate.tools.kit.facts import Ceilings
from kernelgate.tools.kit.statistics import median
from kernelgate.tools.worker.timing import nothing

COPY_BYTES: Final = 64 << 20
"""Larger than the caches of common hosts."""
CACHED_BYTES: Final = 128 << 10
"""Fits the second-level cache with its copy."""
MATMUL_SIZE: Final = 768
REPEATS: Final = 5
READINGS: Final = 200
"""Of a floor, which is their median; less than a millisecond."""


def measure_ceilings() -> Ceilings:
    """Copy bandwidth from memory and from cache (read plus write), and the rate of a float32 product. About 0.2 s."""
    with torch.no_grad():
        word = torch.zeros(1)
        return Ceilings(
            copy_gb_s=_copy_gb_s(COPY_BYTES, 1),
            cache_gb_s=_copy_gb_s(CACHED_BYTES, 200),
            matmul_gflop_s=_matmul_gflop_s(),
            empty_us=_reading_us(nothing),
            launch_us=_reading_us(lambda: torch.relu(word)),
        )


def _reading_us(work: Callable[[], object]) -> float:
    readings_ns: list[int] = []
    for _ in range(READINGS):
        start = time.perf_counter_ns()
        work()
        readings_ns.append(time.perf_counter_ns() - start)
    return median(readings_ns) / 1e3


def _copy_gb_s(size_bytes: int, copies: int) -> float:
    source = torch.ones(size_bytes // 4)
    target = torch.zeros_like(source)
    best_s = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(copies):
            target.copy_(source)
        best_s = min(best_s, time.perf_counter() - start)
    return 2 * size_bytes * copies / best_s / 1e9


def _matmul_gflop_s() -> float:
    left, right = torch.rand(MATMUL_SIZE, MATMUL_SIZE), torch.rand(MATMUL_SIZE, MATMUL_SIZE)
    best_s = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        torch.mm(left, right)
        best_s = min(best_s, time.perf_counter() - start)
    return 2 * MATMUL_SIZE**3 / best_s / 1e9

"""Evidence of profiles with at most one fault each, in the numbers of an H200."""

from typing import Any

from kernelgate.tools.kit.evidence import Counter, Counters, DeviceShape, Evidence, Launch, Operator, OperatorProfile
from kernelgate.tools.kit.facts import Ceilings, Kernel, WorkloadFacts

H200 = DeviceShape(target="sm_90", multiprocessors=132, cache_bytes=60 << 20, dram_gb_s=4810.0)
CEILINGS = Ceilings(copy_gb_s=4280.0, cache_gb_s=9000.0, matmul_gflop_s=600_000.0, empty_us=1.3, launch_us=3.0)
COPY: dict[Counter, float] = {
    "active": 0.93, "busy": 0.97, "dram_read": 0.41, "dram_write": 0.41, "l2": 0.48, "l1": 0.27, "issue": 0.097,
    "tensor": 0.0, "fma": 0.015, "alu": 0.037, "fp64": 0.0, "xu": 0.0, "l2_hits": 0.255, "shared_wavefronts": 0.0,
}  # fmt: skip
"""Measured of torch's copy of 2^26 float32, but for what a copy does not use."""
SLOW: dict[Counter, float] = {
    **COPY, "dram_read": 0.1, "dram_write": 0.1, "l2": 0.15, "l1": 0.2, "issue": 0.08, "fma": 0.02, "alu": 0.04,
}  # fmt: skip
"""A kernel in which no unit is busy, about four times above the bound of memory."""


def row(name: str, us: float, times: int = 1, launch: Launch | None = None) -> Operator:
    """Of ten calls: `times` a call, `us` microseconds in all of them."""
    return Operator(name=name, calls=10 * times, self_us=10 * us, share=0.5, launch=launch)


def own(name: str = "mine", **facts: Any) -> Kernel:
    """A kernel of the candidate, without fault."""
    sound: dict[str, Any] = {
        "target": "sm_90", "registers": 32, "spill_bytes": 0, "shared_bytes": 0, "warps": 8, "tensor_cores": False,
        "vector_loads": True,
    }  # fmt: skip
    return Kernel(name=name, **(sound | facts))


def launch(blocks: int = 8192, threads: int = 256, **facts: int) -> Launch:
    """Of a kernel that fills the device."""
    return Launch(blocks=blocks, threads=threads, **{"registers": 32, **facts})


def counted(base: dict[Counter, float], megabytes: float, sweeps: float = 1.0, **values: float) -> dict[Counter, float]:
    """Counters of a kernel that moves `sweeps` times the sectors of so many megabytes through L1."""
    sectors = sweeps * megabytes * 1e6 / 32
    return {**base, "l1_sectors": sectors, "l1_misses": 0.9 * sectors, **values}  # type: ignore[dict-item]  # names given


def profiled(
    call_us: float,
    *rows: Operator,
    megabytes: float = 128.0,
    counters: dict[Counter, float] | None = None,
    kernels: tuple[Kernel, ...] = (),
    gflop: float = 0.0,
    ceilings: Ceilings = CEILINGS,
    serve: bool = False,
    **of_profile: Any,
) -> Evidence:
    """Half of the megabytes read, half written. By default one kernel `mine` takes the whole call."""
    half = int(megabytes * 5e5)
    return Evidence(
        workload=WorkloadFacts(name="w", held_out=False, bytes_in=half, bytes_out=half, flops=int(gflop * 1e9)),
        profile=OperatorProfile(
            workload="w", calls=10, call_us=call_us, operators=rows or (row("mine", call_us),), **of_profile
        ),
        ceilings=ceilings,
        device=H200,
        counters=None if counters is None else Counters(values=counters, calls=100, call_us=call_us),
        kernels=kernels,
        tensor_cores_serve=serve,
    )

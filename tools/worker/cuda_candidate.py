"""What a candidate's process has on a GPU: lent memory, a timer, a count of what was compiled, a table of kernels.

All that it reports is a claim: the candidate's code runs in the same process.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelgate.tools.kit.evidence import Operator
from kernelgate.tools.kit.statistics import median
from kernelgate.tools.worker import protocol
from kernelgate.tools.worker.cuda_driver import start_cuda
from kernelgate.tools.worker.cuda_lending import CudaBorrower
from kernelgate.tools.worker.cuda_timing import FIRST_ENQUEUE_US, CudaTimer
from kernelgate.tools.worker.timing import Arguments, dropped


class CudaSide:
    """Made when the candidate is loaded, before its module is imported."""

    def __init__(self) -> None:
        """Starts CUDA: about 0.3 s. Raises `CudaFailure`."""
        driver = start_cuda()
        self.borrower = CudaBorrower(driver)
        self.timer = CudaTimer(driver)
        self.compilations = CompileCount()


class CompileCount:
    """How many kernels Triton and torch.compile have made ready in this process, whether compiled or from a cache."""

    def __init__(self) -> None:
        """Hangs itself into Triton as its listener, where this version of Triton has one.

        Not as its hook after compiling: for that Triton writes each constant of a kernel as JSON, which not all can be.
        """
        self._triton = 0
        knobs: Any = getattr(sys.modules.get("triton"), "knobs", None)
        compilation: Any = getattr(knobs, "compilation", None)
        if hasattr(compilation, "listener"):
            compilation.listener = self._note

    def total(self) -> int:
        """So far."""
        dynamo: Any = sys.modules.get("torch._dynamo.utils")
        counters: Any = getattr(dynamo, "counters", {})
        graphs = counters.get("stats", {}).get("unique_graphs", 0)
        return self._triton + int(graphs)

    def _note(self, **_: object) -> None:
        self._triton += 1


def profile_calls(
    timer: CudaTimer,
    forward: Callable[..., Any],
    pool: Mapping[int, Arguments],
    order: Sequence[int],
    before: Callable[[], None],
) -> protocol.Profiled:
    """Time by kernel over some calls, and the time of a call without the profiler, µs.

    Where the profiler cannot work here, the answer has no kernels and a note that says why.
    """
    sleep_us = FIRST_ENQUEUE_US * len(order)
    times = timer.time_block(forward, pool, order, before, dropped, sleep_us)
    call_us = median(times.samples_ns) / 1e3
    try:
        operators = _kernels(forward, pool, order)
    except Exception as error:  # noqa: BLE001  whatever it is, the calls themselves went well above
        note = f"The profiler could not run here: {type(error).__name__}: {error}"
        return protocol.Profiled(call_us=call_us, operators=(), note=note[: protocol.MAX_ERROR_CHARS])
    note = "" if operators else "The profiler saw no kernel: this host may not let it trace the GPU."
    return protocol.Profiled(call_us=call_us, operators=operators, note=note)


def _kernels(forward: Callable[..., Any], pool: Mapping[int, Arguments], order: Sequence[int]) -> tuple[Operator, ...]:
    # Not torch.profiler, which imports the compiler; this is what it stands on.
    profiler: Any = torch.autograd.profiler.profile(use_cpu=True, use_device="cuda", use_kineto=True)
    with profiler, torch.no_grad():
        for index in order:
            positional, named = pool[index]
            forward(*positional, **named)
        torch.cuda.synchronize()
    on_device: list[Any] = [row for row in profiler.key_averages() if str(row.device_type).endswith("CUDA")]
    rows = sorted(on_device, key=lambda row: -float(row.self_device_time_total))
    total = sum(float(row.self_device_time_total) for row in rows) or 1.0
    return tuple(
        Operator(
            name=str(row.key)[: protocol.MAX_NAME_CHARS],
            calls=int(row.count),
            self_us=float(row.self_device_time_total),
            share=float(row.self_device_time_total) / total,
        )
        for row in rows[: protocol.MAX_OPERATORS]
    )

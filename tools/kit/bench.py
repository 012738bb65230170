"""The ports that a tool measures through. Implemented in `tools/worker`, faked in the tests."""

import random
from collections.abc import Mapping
from typing import Protocol

from kernelgate.tasks.model import Distribution, Task
from kernelgate.tools.kit.evidence import Counted, Inspection, OperatorProfile
from kernelgate.tools.kit.facts import (
    Block,
    Ceilings,
    Comparison,
    DeviceState,
    Fault,
    Kernel,
    Prepared,
    ReferenceFacts,
    Side,
    Trace,
    Trial,
    Watched,
    WorkloadFacts,
)  # fmt: skip
from kernelgate.tools.kit.wire import DeviceRef


class Bench(Protocol):
    """The referee's view of one call: a task it holds, and one candidate in a process of its own.

    Only the referee ever sees expected outputs, seeds and orders. Methods that involve the candidate return a
    `Fault` where the candidate failed; they raise only for faults of ours.
    """

    @property
    def task(self) -> Task:
        """The task of the call."""
        ...

    @property
    def device(self) -> DeviceRef:
        """The device of the call."""
        ...

    @property
    def secret(self) -> random.Random:
        """Randomness from the operating system, drawn after the candidate was loaded; never leaves the referee."""
        ...

    def progress(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Tell the waiting client how far the call is."""
        ...

    def workloads(self, *, held_out: bool) -> tuple[WorkloadFacts, ...]:
        """The workloads of this device, smallest (bytes in and out) first."""
        ...

    def load(self) -> Fault | None:
        """Have the candidate's module imported and `ModelNew` found."""
        ...

    def compare(
        self, workload: str, distribution: Distribution, again: int | None = None, *, wait: bool = False
    ) -> Comparison | Fault:
        """One forward on fresh secret inputs at fresh addresses, answer in poisoned buffers, inputs checksummed.

        With `again` on the values of an earlier comparison of this workload, counted from 0, in other memory than then.
        With `wait` the candidate hands its answer over when all streams of its device are idle.
        """
        ...

    def prepare(self, workload: str, pool_entries: int) -> Prepared | Fault:
        """Make a workload ready for `block` on both sides: fresh input pool, expected outputs, first calls."""
        ...

    def block(self, side: Side, calls: int, *, verify: bool) -> Block | Fault:
        """Time calls in a row on the prepared workload; with `verify`, compare the outputs that were kept."""
        ...

    def state(self) -> DeviceState | None:
        """What the device says of itself now; None where it says nothing."""
        ...

    def on_the_house(self, seconds: float) -> None:
        """Seconds of this call that the candidate does not pay for."""
        ...

    def profile(self, workload: str, calls: int, *, counters: bool) -> OperatorProfile | Fault:
        """Time by operator in the candidate's process; with `counters` the device counts while further calls run."""
        ...

    def counted(self, workload: str) -> Counted:
        """What was counted in `profile`, and what the device is."""
        ...

    def inspect(self, limit_s: float) -> Inspection | Fault:
        """One call on what `profile` made ready, under Nsight Compute, for at most so long."""
        ...

    def watched(self) -> Watched | Fault:
        """With what a further call on the prepared workload computes."""
        ...

    def ceilings(self) -> Ceilings:
        """Bandwidth and arithmetic of the device; measured once by a referee, on the house."""
        ...

    def reference(self, workload: str, distribution: Distribution) -> ReferenceFacts:
        """The reference judged by itself: run twice on the same input."""
        ...

    def trials(self, workload: str, distribution: Distribution) -> tuple[Trial, ...]:
        """Mutant answers under the task's tolerance."""
        ...


class Builder(Protocol):
    """The view of the compile rung: no device, no lease; the candidate's process traces, a trusted one reads."""

    @property
    def task(self) -> Task:
        """The task of the call."""
        ...

    @property
    def device(self) -> DeviceRef:
        """The device that the run is on."""
        ...

    @property
    def files(self) -> Mapping[str, str]:
        """The candidate's files: name → text."""
        ...

    def missing_programs(self) -> tuple[str, ...]:
        """Which of the programs that build C++ and CUDA extensions this host lacks: `nvcc`, `ninja`, a C++ compiler."""
        ...

    def load(self) -> Fault | None:
        """Have the candidate's module imported and `ModelNew` found."""
        ...

    def trace(self) -> Trace | Fault:
        """Construct and run forward on fake tensors of each public workload; Triton kernels compile on the way."""
        ...

    def construct(self) -> Trace | Fault:
        """Construct for one public workload on fake tensors, without a forward; extensions are built on the way."""
        ...

    def extensions(self) -> tuple[str, ...]:
        """Names of the extensions in C++ and CUDA that were built so far, where the later rungs find them."""
        ...

    def kernels(self) -> tuple[Kernel, ...]:
        """Read the binaries that the trace left in the candidate's cache. Done in the trusted process."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What `kernels` could not read, and what to do about it; one sentence each."""
        ...

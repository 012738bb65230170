"""The referee's part of a profile: what it asks the candidate's process for, and the counters beside it."""

import base64
import random
import time
from collections.abc import Callable
from typing import Final, Protocol

import torch

from kernelgate.tasks.model import Precision
from kernelgate.tools.kit.evidence import Counted, Inspection, OperatorProfile
from kernelgate.tools.kit.facts import Fault, Prepared
from kernelgate.tools.worker import protocol
from kernelgate.tools.worker.conversation import AnswerT
from kernelgate.tools.worker.counters import WINDOW_US, Counting
from kernelgate.tools.worker.cuda_device import cold_entries, shape_of, tensor_cores_serve
from kernelgate.tools.worker.sizing import Sizes

PROFILED_US: Final = 50_000.0
"""A profile covers about so much work, at least one call."""


class Ask(Protocol):
    """A question to the candidate, at the stage of profiling."""

    def __call__(self, question: protocol.Question, answer: type[AnswerT]) -> AnswerT | Fault:
        """Waits for the answer."""
        ...


class Profiling:
    """Of one call, on the CPU device: operators, no counters."""

    def __init__(self, ask: Ask, secret: random.Random) -> None:
        """Nothing asked yet."""
        self._ask = ask
        self._secret = secret

    def begin(self, *, counters: bool) -> None:
        """Before the workload is made ready: what can get ready meanwhile."""

    def entries(self, sizes: Sizes) -> int:
        """How many inputs the calls take turns with."""
        return 1

    def profile(self, prepared: Prepared, calls: int) -> OperatorProfile | Fault:
        """Operators of at most so many calls: a slow one is often thousands, each an event that is kept and sorted."""
        calls = max(1, min(calls, int(PROFILED_US / max(prepared.candidate_us, 1.0))))
        answer = self._ask(protocol.ProfileCalls(calls=calls, seed=self._seed()), protocol.Profiled)
        if isinstance(answer, Fault):
            return answer
        return OperatorProfile(workload=prepared.workload.name, calls=calls, **dict(answer))

    def counted(self, sizes: Sizes, precision: Precision) -> Counted:
        """Nothing."""
        return Counted()

    def inspect(self, precision: Precision, limit_s: float) -> Inspection | Fault:
        """Nothing: there is no Nsight Compute for a CPU."""
        return Inspection(note="Nsight Compute profiles GPUs: a CPU has the table of operators only")

    def close(self) -> None:
        """The call is over."""

    def _seed(self) -> int:
        return self._secret.getrandbits(31)


class CudaProfiling(Profiling):
    """On a GPU: a process counts what the device does while calls run back to back."""

    def __init__(
        self, ask: Ask, secret: random.Random, target: str, counting: Counting, house: Callable[[float], None]
    ) -> None:
        """As the base.

        Args:
            ask: the candidate.
            secret: the call's.
            target: the device's architecture, `sm_90`.
            counting: the referee's own.
            house: takes seconds that the candidate does not pay for.
        """
        super().__init__(ask, secret)
        self._target = target
        self._counting = counting
        self._house = house
        self._counted = False

    def begin(self, *, counters: bool) -> None:
        """Get the counters ready beside the rest."""
        self._counted = counters
        if counters:
            self._counting.arm()

    def entries(self, sizes: Sizes) -> int:
        """So many that each comes from memory and not from the cache."""
        return cold_entries(sizes)

    def profile(self, prepared: Prepared, calls: int) -> OperatorProfile | Fault:
        """As the base, behind a window in which the device counts: its values are computed beside the rest."""
        fault = self._count(prepared.candidate_us)
        return super().profile(prepared, calls) if fault is None else fault

    def counted(self, sizes: Sizes, precision: Precision) -> Counted:
        """What the device is, and what it counted."""
        counters = self._counting.read() if self._counted else None
        return Counted(
            device=shape_of(self._target),
            counters=counters,
            missing=self._counting.problem if self._counted else "",
            tensor_cores_serve=tensor_cores_serve(sizes, precision),
        )

    def inspect(self, precision: Precision, limit_s: float) -> Inspection | Fault:
        """Has the candidate's process run Nsight Compute, and fetches the report."""
        self._counting.close()  # one profiler at a time
        torch.cuda.empty_cache()  # the call is made in one more process
        question = protocol.Inspect(seed=self._seed(), tf32=precision == "tf32", limit_s=limit_s)
        answer = self._ask(question, protocol.InspectedCall)
        if isinstance(answer, Fault):
            return answer
        report = bytearray()
        while len(report) < answer.report_bytes:
            part = self._ask(protocol.ReportPart(start=len(report)), protocol.ReportBytes)
            if isinstance(part, Fault):
                return part
            data = decoded(part.data)
            if not data:
                break
            report += data
        return Inspection(
            kernels=answer.kernels, launches=answer.launches, note=answer.note,
            report=base64.b64encode(report).decode(),
        )  # fmt: skip

    def close(self) -> None:
        """A window that was not read is given up."""
        self._counting.finish()

    def _count(self, call_us: float) -> Fault | None:
        if not self._counted:
            return None
        start = time.perf_counter()
        counting = self._counting
        begun = counting.begin()
        self._house(time.perf_counter() - start)
        if not begun:
            return None
        calls = max(1, min(protocol.MAX_CALLS, int(WINDOW_US / max(call_us, 1.0))))
        answer = self._ask(protocol.Steady(calls=calls, seed=self._seed()), protocol.Steadied)
        counting.end(calls, 0.0 if isinstance(answer, Fault) else answer.call_us)
        return answer if isinstance(answer, Fault) else None


def decoded(data: str) -> bytes:
    """Base64 from a candidate's process; empty where it is none."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return b""

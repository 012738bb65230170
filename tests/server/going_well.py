"""What a worker answers when all goes well, for tests that say themselves what goes wrong."""

import random
from collections.abc import Callable
from typing import Any

from fakes import FakeRunner
from pydantic import JsonValue
from synthetic import CEILINGS, noisy, timing, workload

from kernelgate.server.measure import KNOWN_GOOD
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.timing_report import TimingFacts
from kernelgate.tools.kit.wire import ChildExit, WorkerReply, WorkerRequest

Answer = Callable[[WorkerRequest], WorkerReply]
REFERENCE = {
    "finite": True, "deterministic": True, "output_std": 1.0, "bytes_needed": 1000,
}  # fmt: skip


def finished(request: WorkerRequest, facts: JsonValue, **more: Any) -> WorkerReply:
    return WorkerReply(request_id=request.request_id, facts=facts, **{"exit": ChildExit(kind="finished"), **more})


def finished_without(request: WorkerRequest) -> WorkerReply:
    return finished(request, None)


def qualified(request: WorkerRequest) -> WorkerReply:
    names = [(w.name, d) for w in request.task.workloads_on("cpu", held_out=True) for d in request.task.distributions]
    references: list[JsonValue] = [{"workload": w, "distribution": d, **REFERENCE} for w, d in names]
    trials: list[JsonValue] = [
        {"mutant": "zeros", "workload": w, "distribution": d, "passes": False} for w, d in names
    ]  # fmt: skip
    return finished(request, {"references": references, "trials": trials})


def built(request: WorkerRequest) -> WorkerReply:
    trace = {"on": "fake_cpu", "workloads": ["64x256"], "complete": True}
    return finished(request, {"trace": trace}, wall_s=0.2)


def correct(request: WorkerRequest, **more: Any) -> WorkerReply:
    comparison = {"workload": "64x256", "distribution": "normal", "problem": "none"}
    return finished(request, {"comparisons": [comparison], "planned": 1}, **{"lease_s": 0.5, "wall_s": 0.6, **more})


def timed(request: WorkerRequest, *timings: WorkloadTiming, **more: Any) -> WorkerReply:
    facts = TimingFacts(timings=timings, ceilings=CEILINGS).model_dump(mode="json")
    return finished(request, facts, **{"lease_s": 0.5, "wall_s": 0.6, **more})


def steady(name: str, *, held_out: bool = False, gain: float = 2.0, pairs: int = 24) -> WorkloadTiming:
    """A workload on which the candidate is so many times as fast, with one percent of noise."""
    rng = random.Random(name)
    return timing(noisy(rng, 1000, 0.01), noisy(rng, 1000 / gain, 0.01), pairs, facts=workload(name, held_out=held_out))


PUBLIC = (steady("64x256"), steady("1024x1024"))
"""Of the task softmax on the CPU."""


def as_fast(request: WorkerRequest) -> WorkerReply:
    """The baseline against itself."""
    return timed(request, steady("64x256", gain=1.0), steady("tail_cpu", held_out=True, gain=1.0))


def worker(
    precise: Answer, known_good: Answer | None = None, quick: Answer | None = None, profile: Answer = finished_without
) -> FakeRunner:
    """All goes well up to a precise timing."""

    def answer(request: WorkerRequest) -> WorkerReply:
        is_ours = any(KNOWN_GOOD in text for text in request.files.values())
        good = known_good or as_fast
        answers: dict[str, Callable[[WorkerRequest], WorkerReply]] = {
            "qualify": qualified,
            "compile": built,
            "check_correctness": correct,
            "quick_time": quick or (lambda request: timed(request, *PUBLIC, log="printed at quick")),
            "precise_time": good if is_ours else precise,
            "profile": profile,
        }
        return answers[request.procedure](request)

    return FakeRunner(answer)

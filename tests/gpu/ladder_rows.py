"""What other tools' ways of judging a candidate cost: the same candidates, the same host, each in a fresh process.

Two ways: KernelBench's evaluator as published, from a checkout (`kernelbench_evaluator.py`), and a fixed `do_bench` of
candidate and reference, as KernelAgent does (`do_bench_once.py`). Each starts with an empty cache of Triton's, as for a
candidate that is new.
"""

import os
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gpu_path as gpu_path  # before the package
from kernelbench_evaluator import in_a_process

from kernelgate.budget.ladder.model import Stream, Truth
from kernelgate.budget.model import Rung, Verdict
from kernelgate.tasks.model import DeviceKind, Task
from kernelgate.tasks.source import with_overrides

HERE: Final = Path(__file__).resolve().parent
LIMIT_S: Final = 180.0
RESAMPLES: Final = 2_000
TAIL: Final = 0.025


def laid_out(folder: Path, task: Task, source: str, kind: DeviceKind) -> tuple[Path, Path]:
    """Reference and candidate as two files, at the largest public shape of the task: the other tools take one."""
    largest = task.workloads_on(kind, held_out=False)[-1]
    reference, candidate = folder / "reference.py", folder / "candidate.py"
    reference.write_text(with_overrides(task.source, largest.overrides), encoding="utf-8")
    candidate.write_text(source, encoding="utf-8")
    return reference, candidate


def chosen(stream: Stream, truth: Truth, count: int, seed: int) -> tuple[list[str], int]:
    """Ids of some candidates that the flat pass judged correct, drawn at random, and how many there are."""
    right = [
        tried.id
        for tried in truth.tried
        if any(one.rung is Rung.check and one.verdict is Verdict.correct for one in tried.outcomes)
    ]
    draws = random.Random(f"{seed}:{stream.name}")
    return draws.sample(right, min(count, len(right))), len(right)


def extrapolated(seconds: Sequence[float], count: int, seed: int = 0) -> dict[str, float]:
    """What `count` candidates would take, by the mean of some; with a bootstrap interval (95 %) over those."""
    draws = random.Random(seed)
    means = sorted(statistics.fmean(draws.choices(seconds, k=len(seconds))) for _ in range(RESAMPLES))
    last = len(means) - 1
    low, high = means[round(TAIL * last)], means[round((1 - TAIL) * last)]
    return {"value": count * statistics.fmean(seconds), "low": count * low, "high": count * high}


def row(way: str, folder: Path, files: tuple[Path, Path], kind: str, checkout: str, limit_s: float) -> dict[str, Any]:
    """One candidate one way: `wall_s` from the start of its process to its end, and what it said."""
    words = [str(file) for file in files]
    command = {
        "kernelbench": [str(HERE / "kernelbench_evaluator.py"), "--files", checkout, *words],
        "do_bench": [str(HERE / "do_bench_once.py"), *words, kind],
    }[way]
    env = os.environ | {"TRITON_CACHE_DIR": str(folder / f"triton_{way}")}
    return in_a_process([sys.executable, *command], min(limit_s, LIMIT_S), env)

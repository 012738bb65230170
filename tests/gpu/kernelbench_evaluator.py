"""KernelBench's own evaluator on the same candidates, the same host: what we compare ourselves with.

`python tests/gpu/kernelbench_evaluator.py CHECKOUT OUT.json [PROBLEM …]`; `--files CHECKOUT REFERENCE CANDIDATE` prints
what it says of one candidate in two files. Its published defaults: a fresh process for
each candidate, 5 correctness trials, 100 timed ones. Nothing of it is copied: it is imported from the checkout. What it
imports beside torch and numpy and does not use here (clients of language models) is stood in for where it is absent.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kernelbench_candidates import SOURCES

PROBLEMS = ("1_Square_matrix_multiplication_", "19_ReLU", "36_RMSNorm_")
UNUSED = ("requests", "dotenv", "openai", "litellm", "tqdm")
TRIALS, TIMED = 5, 100
LIMIT_S = 180


def evaluate(checkout: Path, reference: str, candidate: str) -> dict[str, Any]:
    """One candidate in this process, both as source texts; what it took without its imports."""
    for name in UNUSED:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = MagicMock()
    sys.path.insert(0, str(checkout / "src"))
    began_s = time.perf_counter()
    evaluator: Any = importlib.import_module("kernelbench.eval")
    imported_s = time.perf_counter()
    result = evaluator.eval_kernel_against_ref(
        reference, candidate, num_correct_trials=TRIALS, num_perf_trials=TIMED, measure_performance=True,
        backend="triton", device=0,
    )  # fmt: skip
    return {
        "import_s": imported_s - began_s, "eval_s": time.perf_counter() - imported_s, "correct": result.correctness,
        "runtime_ms": result.runtime, "said": str(result.metadata)[:400],
    }  # fmt: skip


def problem_of(checkout: Path, problem: str) -> tuple[str, str]:
    """The reference of a problem in the checkout, and our candidate for it."""
    path = checkout / "KernelBench" / "level1" / f"{problem}.py"
    return path.read_text(encoding="utf-8"), SOURCES[problem]


def in_files(reference: str, candidate: str) -> tuple[str, str]:
    """Both as texts."""
    return Path(reference).read_text(encoding="utf-8"), Path(candidate).read_text(encoding="utf-8")


def in_a_process(
    command: Sequence[str], limit_s: float = LIMIT_S, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One candidate in a process of its own: seconds from its start to its end, and what its last line said."""
    began_s = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env=env)
    except subprocess.TimeoutExpired:
        return {"wall_s": time.perf_counter() - began_s, "error": f"longer than {limit_s:.0f} s"}
    told: dict[str, Any] = {"wall_s": time.perf_counter() - began_s}
    return told | (json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": done.stderr[-1500:]})


def main(checkout: str, out: str, *problems: str) -> None:
    """Each problem in a process of its own, as its scripts do."""
    found: list[dict[str, Any]] = []
    for problem in problems or PROBLEMS:
        told = {"problem": problem, **in_a_process([sys.executable, __file__, "--one", checkout, problem])}
        found.append(told)
        Path(out).write_text(json.dumps(found, indent=1), encoding="utf-8")
        sys.stdout.write(f"{json.dumps(told)[:400]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] in ("--one", "--files"):
        texts = problem_of(Path(sys.argv[2]), sys.argv[3]) if sys.argv[1] == "--one" else in_files(*sys.argv[3:5])
        sys.stdout.write(f"\n{json.dumps(evaluate(Path(sys.argv[2]), *texts))}\n")
    else:
        main(*sys.argv[1:])

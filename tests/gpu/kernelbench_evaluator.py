"""KernelBench's own evaluator on the same candidates, the same host: what we compare ourselves with.

`python tests/gpu/kernelbench_evaluator.py CHECKOUT OUT.json [PROBLEM …]`. Its published defaults: a fresh process for
each candidate, 5 correctness trials, 100 timed ones. Nothing of it is copied: it is imported from the checkout. What it
imports beside torch and numpy and does not use here (clients of language models) is stood in for where it is absent.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kernelbench_candidates import SOURCES

PROBLEMS = ("1_Square_matrix_multiplication_", "19_ReLU", "36_RMSNorm_")
UNUSED = ("requests", "dotenv", "openai", "litellm", "tqdm")
TRIALS, TIMED = 5, 100
LIMIT_S = 180


def evaluate(checkout: Path, problem: str) -> dict[str, Any]:
    """One candidate in this process; what it took without its imports."""
    for name in UNUSED:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = MagicMock()
    sys.path.insert(0, str(checkout / "src"))
    began_s = time.perf_counter()
    evaluator: Any = importlib.import_module("kernelbench.eval")
    imported_s = time.perf_counter()
    reference = (checkout / "KernelBench" / "level1" / f"{problem}.py").read_text(encoding="utf-8")
    result = evaluator.eval_kernel_against_ref(
        reference, SOURCES[problem], num_correct_trials=TRIALS, num_perf_trials=TIMED, measure_performance=True,
        backend="triton", device=0,
    )  # fmt: skip
    return {
        "import_s": imported_s - began_s, "eval_s": time.perf_counter() - imported_s, "correct": result.correctness,
        "runtime_ms": result.runtime, "said": str(result.metadata)[:400],
    }  # fmt: skip


def main(checkout: str, out: str, *problems: str) -> None:
    """Each problem in a process of its own, as its scripts do."""
    found: list[dict[str, Any]] = []
    for problem in problems or PROBLEMS:
        began_s = time.perf_counter()
        command = [sys.executable, __file__, "--one", checkout, problem]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        told: dict[str, Any] = {"problem": problem, "wall_s": time.perf_counter() - began_s}
        if done.returncode == 0:
            told |= json.loads(done.stdout.splitlines()[-1])
        else:
            told["error"] = done.stderr[-1500:]
        found.append(told)
        Path(out).write_text(json.dumps(found, indent=1), encoding="utf-8")
        sys.stdout.write(f"{json.dumps(told)[:400]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        sys.stdout.write(f"\n{json.dumps(evaluate(Path(sys.argv[2]), sys.argv[3]))}\n")
    else:
        main(*sys.argv[1:])

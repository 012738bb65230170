"""The noise of an H200, read from raw readings of two measurements until a book of streams exists."""

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from measurement import FOLDER

from kernelgate.budget.ladder.noise import Cost, Failure, Noise

NOT_BUILT: Final = 0.2
NOT_RIGHT: Final = 0.2
"""Assumed: the readings are of candidates that pass."""
SHIFTS: Final = (-0.14, 0.0, 0.14)
"""Assumed: by how much quick flatters all candidates of a stream. The one Triton kernel measured on both rungs gained
13.7 % more on quick's two workloads than on all of precise's, and a rewrite of rmsnorm 27.7 %."""
_TOOLS: Final = ("check_correctness", "quick_time", "precise_time")


def h200_noise(folder: Path = FOLDER) -> Noise:
    """Costs, widths and errors as recorded; shares of failures and shifts as assumed."""
    quality, cost = (_raw(folder / f"{name}.json") for name in ("timing_quality", "gpu_candidate_cost"))
    by_candidate: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for run in quality["runs"]:
        if run["step"] == "cost":
            by_candidate[run["part"], run["candidate"]][run["tool"]] = run
    rows = [[found[tool] for tool in _TOOLS] for found in by_candidate.values()]
    compile_wall_s = cost["gpu_host"]["ladder"]["triton.compile"]["s"]
    errors: dict[str, list[float]] = defaultdict(list)
    for _, quick, precise in rows:
        errors[quick["part"]].append(math.log(quick["ratio"] / precise["ratio"]))
    wrong = cost["gpu_host"]["hostile"]["wrong values"]
    return Noise(
        source="docs/measurements/timing_quality.json (step cost: 16 candidates of the bundled tasks) and"
        " gpu_candidate_cost.json (compile, wrong values); shares of failures and shifts of quick are assumed",
        costs=tuple(
            Cost(
                check_s=check["lease_s"], quick_s=quick["lease_s"], precise_s=precise["lease_s"],
                compile_wall_s=compile_wall_s, check_wall_s=check["s"], quick_wall_s=quick["s"],
                precise_wall_s=precise["s"],
            )
            for check, quick, precise in rows
        ),
        failures=(Failure(device_s=wrong["cost"]["lease_s"], wall_s=wrong["s"]),),
        quick_half_widths=tuple(_half_width(quick) for _, quick, _ in rows),
        precise_half_widths=tuple(_half_width(precise) for _, _, precise in rows),
        quick_errors=tuple(error - statistics.median(of_task) for of_task in errors.values() for error in of_task),
        quick_shifts=SHIFTS,
        build_failed_share=NOT_BUILT,
        wrong_share=NOT_RIGHT,
    )  # fmt: skip


def _raw(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))["raw"]


def _half_width(run: dict[str, Any]) -> float:
    return float((run["high"] - run["low"]) / 2 / run["ratio"])

"""What `timing_quality.py` makes of its runs: records in, flat figures out. Pure."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Run = dict[str, Any]
"""One call, or one reading of another method: `step`, `part`, and what was seen."""
Figures = dict[str, int | float]

CLASSES = ("faster", "slower", "same", "ambiguous")
FALSE = ("faster", "slower")
"""Of the baseline as its own candidate."""
OVERTURNED = {("maybe_faster", "slower"), ("clearly_slower", "faster")}
CONFIDENCE = 0.95


def binomial_tail(successes: int, trials: int, share: float) -> float:
    """Probability of at most so many successes."""
    if share <= 0 or share >= 1:
        return float(share <= 0 or successes >= trials)

    def term(k: int) -> float:
        chosen = math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        return math.exp(chosen + k * math.log(share) + (trials - k) * math.log1p(-share))

    return math.fsum(term(k) for k in range(successes + 1))


def share_upper(successes: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Clopper and Pearson's one-sided upper bound: at that share so few successes are as rare as 1 - confidence."""
    if successes >= trials:
        return 1.0
    low, high = successes / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if binomial_tail(successes, trials, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that so large a share of all does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread_pct(values: Sequence[float]) -> float:
    """From the least to the largest, in percent of the median."""
    return 100 * (max(values) - min(values)) / statistics.median(values)


def by(runs: Iterable[Run], *names: str) -> dict[Any, list[Run]]:
    """Runs by what stands under a name, or under several."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        key = run[names[0]] if len(names) == 1 else tuple(run[name] for name in names)
        found.setdefault(key, []).append(run)
    return found


def aa_figures(runs: Sequence[Run]) -> Figures:
    """How often the baseline was told apart from itself."""
    classed = [run for run in runs if run.get("verdict") in CLASSES]
    if not classed:
        return {"aa_runs": 0, "aa_without_class": len(runs)}
    wrong = sum(run["verdict"] in FALSE for run in classed)
    found: Figures = {
        "aa_runs": len(classed), "aa_false": wrong, "aa_false_share": wrong / len(classed),
        "aa_false_share_upper": share_upper(wrong, len(classed)),
        "aa_false_share_least_floor": sum(run["least_floor_verdict"] in FALSE for run in classed) / len(classed),
        "aa_same_share": sum(run["verdict"] == "same" for run in classed) / len(classed),
        "aa_without_class": len(runs) - len(classed),
        "aa_ratio_off_pct_max": max(100 * abs(run["ratio"] - 1) for run in classed),
        "aa_half_width_pct_median": statistics.median(50 * (run["high"] - run["low"]) for run in classed),
        "aa_lease_s_median": statistics.median(run["lease_s"] for run in classed),
        "aa_pairs_median": statistics.median(w["pairs"] for run in classed for w in run["workloads"]),
    }  # fmt: skip
    for task, some in sorted(by(classed, "part").items()):
        found[f"aa_runs_{task}"] = len(some)
        found[f"aa_false_{task}"] = sum(run["verdict"] in FALSE for run in some)
    return found


def sensitivity_figures(runs: Sequence[Run]) -> Figures:
    """How often so much more work was called slower, and what it read as."""
    found: Figures = {}
    classed = by((run for run in runs if run.get("verdict") in CLASSES), "part")
    for percent, some in sorted(classed.items(), key=lambda each: float(each[0])):
        name = percent.replace(".", "_")
        found[f"found_{name}pct_share"] = sum(run["verdict"] == "slower" for run in some) / len(some)
        found[f"found_{name}pct_runs"] = len(some)
        found[f"found_{name}pct_ratio_median"] = statistics.median(run["ratio"] for run in some)
        found[f"found_{name}pct_lease_s_median"] = statistics.median(run["lease_s"] for run in some)
    return found


def repeat_figures(runs: Sequence[Run]) -> Figures:
    """How far apart the speed-ups of one candidate are over fresh supervisors; of all candidates the worst too."""
    measured = by((run for run in runs if run.get("ratio") is not None), "part")
    spreads = {name: spread_pct([run["ratio"] for run in some]) for name, some in measured.items() if len(some) > 1}
    if not spreads:
        return {}
    found: Figures = {"repeat_spread_pct": max(spreads.values())}
    for name, spread in sorted(spreads.items()):
        found |= {f"repeat_spread_pct_{name}": spread, f"repeat_runs_{name}": len(measured[name])}
    return found


def cost_figures(runs: Sequence[Run]) -> Figures:
    """What both timings cost, and how often the dear one turned the cheap one over."""
    found: Figures = {}
    for tool, name in (("quick_time", "quick"), ("precise_time", "precise")):
        leases = [run["lease_s"] for run in runs if run["tool"] == tool and run.get("ratio") is not None]
        if leases:
            found[f"{name}_lease_s_median"] = statistics.median(leases)
            found[f"{name}_lease_s_p95"] = percentile(leases, 0.95)
    both: list[tuple[str, str]] = []
    for some in by(runs, "file", "part", "candidate").values():
        told = {run["tool"]: run["verdict"] for run in some if run.get("ratio") is not None}
        if {"quick_time", "precise_time"} <= set(told):
            both.append((told["quick_time"], told["precise_time"]))
    if both:
        found["quick_overturned_share"] = sum(pair in OVERTURNED for pair in both) / len(both)
        found["quick_and_precise_runs"] = len(both)
    return found


def against_figures(runs: Sequence[Run]) -> Figures:
    """Of each method: repeatability, seconds, and how far off the device's own record of its kernels.

    A kernel without that record is compared with our own method instead, and the figure says so in its name.
    """
    readings = by((run for run in runs if "value" in run), "method", "part")
    found: Figures = {}
    for (method, kernel), some in sorted(readings.items()):
        value = statistics.median(run["value"] for run in some)
        if method == "activity":
            found[f"activity_us_median_{kernel}"] = value
            continue
        spreads = [spread_pct([run["value"] for run in of_file]) for of_file in by(some, "file").values()]
        found[f"{method}_spread_pct_{kernel}"] = statistics.median(spreads)
        if method == "ours_pairs":  # a ratio, whose truth is 1
            continue
        found[f"{method}_us_median_{kernel}"] = value
        truth = "activity" if ("activity", kernel) in readings else "ours"
        if (truth, kernel) in readings and truth != method:
            true_us = statistics.median(run["value"] for run in readings[truth, kernel])
            found[f"{method}_off_{truth}_pct_{kernel}"] = 100 * (value / true_us - 1)
    for method in {method for method, _ in readings} - {"activity"}:
        kernels = [kernel for other, kernel in readings if other == method]
        spreads = [float(found[f"{method}_spread_pct_{kernel}"]) for kernel in kernels]
        found[f"{method}_spread_pct_median"] = statistics.median(spreads)
        seconds = [run["gpu_s"] for kernel in kernels for run in readings[method, kernel]]
        found[f"{method}_gpu_s_median"] = statistics.median(seconds)
    return dict(sorted(found.items()))


def bad_figures(runs: Sequence[Run]) -> Figures:
    """How many of the bad ones were called a gain by the timing that decides."""
    asked = [run for run in runs if run.get("tool") == "precise_time"]
    return {"bad_runs": len(asked), "bad_faster": sum(run.get("verdict") == "faster" for run in asked)} if asked else {}


OF_STEP: dict[str, Callable[[Sequence[Run]], Figures]] = {
    "aa": aa_figures,
    "sensitivity": sensitivity_figures,
    "repeat": repeat_figures,
    "cost": cost_figures,
    "against": against_figures,
    "bad": bad_figures,
}


def figures(runs: Sequence[Run]) -> Figures:
    """Of all steps that were run."""
    found: Figures = {}
    for step, some in by(runs, "step").items():
        found |= OF_STEP[step](some)
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in found.items()}


def pooled(files: Sequence[dict[str, Any]]) -> list[Run]:
    """The runs of several calls of the program, in order of the steps; each says which file it comes from."""
    runs = [{**run, "file": number} for number, found in enumerate(files) for run in found["runs"]]
    return sorted(runs, key=lambda run: list(OF_STEP).index(run["step"]))

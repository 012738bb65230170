"""Turns what a GPU host wrote into docs/measurements/gpu_candidate_cost.json.

`python tests/gpu/write_figures.py DIR`, where DIR has `gpu_host.json` of `gpu_host.py`, `kernelbench.json` of
`kernelbench_run.py`, `evaluator.json` of `kernelbench_evaluator.py`, `demo.txt` as `kernelgate demo` printed it,
`server_run.json` and, from a host with two cards, `two_cards.json` of `server_run.py`. What DIR lacks, and steps of
`server_run.py` that were not run, stay as the measurement has them, and are named there with the date of their run.
Without `gpu_host.json` the host is taken for the one that the measurement names, and the date is the newest file's.
"""

import json
import re
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from kernelbench_run import charged_s
from measurement import FOLDER, MeasuredHost, MeasurementFile

from kernelgate.server.installed import package_version

COMMAND = (
    "python tests/gpu/gpu_host.py --out DIR; python tests/gpu/kernelbench_run.py CHECKOUT DIR/kernelbench.json;"
    " python tests/gpu/kernelbench_evaluator.py CHECKOUT DIR/evaluator.json;"
    " kernelgate demo --device cuda:0 > DIR/demo.txt; python tests/gpu/server_run.py DIR/server_run.json;"
    " on two cards: python tests/gpu/server_run.py DIR/two_cards.json two_cards"
)


def ratios(steps: dict[str, Any]) -> list[float]:
    """Half widths of the 95 % intervals of the baseline against itself, as shares."""
    found: list[float] = []
    for name, each in steps.items():
        if isinstance(each, dict) and "report" in each:
            for workload in each["report"].get("workloads", []):
                found.append((workload["high"] - workload["low"]) / 2)
                assert workload["pairs"] > 0, name
    return found


def figures(host: dict[str, Any], problems: list[dict[str, Any]]) -> dict[str, int | float]:
    """Flat names with units → numbers; what a run did not reach is left out."""
    found: dict[str, int | float] = {}
    ladder = host.get("ladder", {})
    for name, key in (
        ("source_to_quick_s_median_softmax", "source_to_quick_s_median"),
        ("check_quick_lease_s_median", "check_quick_lease_s_median"),
    ):
        if key in ladder:
            found[name] = ladder[key]
    recoveries = [each["recovery_s"] for each in host.get("hostile", {}).values() if isinstance(each, dict)]
    if recoveries:
        found["recovery_s_max"] = max(recoveries)
    if "lend" in host:
        found["fork_to_ready_s_median"] = statistics.median(host["lend"]["fork_to_ready_s"])
    if widths := ratios(host.get("against_itself", {})):
        found["aa_half_width_pct_median"] = 100 * statistics.median(widths)
    for each in problems:
        if "source_to_quick_s" in each:
            again = each.get("again", [])
            took = [each["source_to_quick_s"], *(one["source_to_quick_s"] for one in again)]
            charged = [charged_s(each), *(one["charged_s"] for one in again)]
            which = f"median_{each['problem']}" if again else each["problem"]
            found[f"source_to_quick_s_{which}"] = statistics.median(took)
            found[f"check_quick_lease_s_{which}"] = statistics.median(charged)
    found["kernelbench_problems_tried"] = len(problems)
    found["kernelbench_problems_refused"] = sum("refused" in each for each in problems)
    timed = [each for each in problems if (each.get("precise") or {}).get("status") == "ok"]
    found["kernelbench_problems_timed_precisely"] = len(timed)
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in found.items()}


def evaluator_figures(runs: list[dict[str, Any]]) -> dict[str, int | float]:
    """KernelBench's own evaluator, a candidate from the start of its process to its end."""
    return {f"kernelbench_eval_s_{each['problem']}": round(each["wall_s"], 2) for each in runs}


def demo_figures(printed: str) -> dict[str, int | float]:
    """What the demo took, and the speed-up of its Triton candidate with the interval."""
    took = re.search(r"^took ([\d.]+) s$", printed, re.MULTILINE)
    # The verdict of the one call of the script that times the Triton candidate precisely.
    triton = re.search(r"08_triton: precise .* ([\d.]+)x, 95 % interval ([\d.]+)x to ([\d.]+)x", printed)
    if took is None or triton is None:
        raise SystemExit("This is not the print of a demo on a GPU.")
    names = ("demo_s", "demo_triton_speed_up", "demo_triton_speed_up_low", "demo_triton_speed_up_high")
    return dict(zip(names, map(float, (took[1], *triton.groups())), strict=True))


def server_figures(steps: dict[str, Any]) -> dict[str, int | float]:
    """Several agents at once, and inline CUDA."""
    found: dict[str, int | float] = {}
    if steps.get("agents", {}).get("ok"):
        agents = steps["agents"]
        found["agents_at_once"] = agents["agents"]
        found["lease_busy_share"] = agents["busy_share"]
        found["agents_source_to_quick_s_median"] = statistics.median(agents["source_to_quick_s"])
    if steps.get("inline_cuda", {}).get("ok"):
        found["inline_cuda_source_to_quick_s"] = steps["inline_cuda"]["first"]["seconds"]
        found["inline_cuda_known_failure_s"] = steps["inline_cuda"]["broken_again"]["seconds"]
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def without_places(raw: Any) -> Any:
    """The same readings without the folders of the host in texts: only the names of files stay."""
    return json.loads(re.sub(r"(?<![\w.:/])/(?:[\w.+-]+/)+", "…/", json.dumps(raw, ensure_ascii=False)))


def filled(folder: Path, earlier: dict[str, Any], date_utc: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What a folder has, its gaps filled from an earlier measurement, and when what came from there was run."""
    parts = {"demo": "demo.txt", "kernelbench": "kernelbench.json", "kernelbench_evaluator": "evaluator.json",
             "server_run": "server_run.json", "two_cards": "two_cards.json"}  # fmt: skip
    raw: dict[str, Any] = {}
    kept: list[str] = []
    for name, file in parts.items():
        path = folder / file
        if path.exists():
            text = path.read_text(encoding="utf-8")
            raw[name] = text if file.endswith(".txt") else json.loads(text)
        else:
            raw[name] = earlier[name]
            kept.append(name)
    steps = [step for step in earlier["server_run"] if step not in raw["server_run"]]
    raw["server_run"] |= {step: earlier["server_run"][step] for step in steps}
    kept += [f"server_run.{step}" for step in steps]
    dates: dict[str, str] = earlier["of_an_earlier_run"]
    return raw, {name: dates.get(name, date_utc) for name in kept}


def host_of(seen: dict[str, Any]) -> MeasuredHost:
    """From the environment that `gpu_host.py` looked at."""
    return MeasuredHost(
        device=seen["device"],
        driver=str(seen.get("nvidia_smi", "")).partition("Driver Version: ")[2].split(" ")[0],
        cpu=f"{seen['cpus']} cores",
        python=seen["python"].split(" ")[0],
        torch=seen["torch"],
        triton=seen["triton"],
        kernelgate=package_version("kernelgate"),
    )


def newest(folder: Path) -> str:
    """When the last of its files was written."""
    return f"{datetime.fromtimestamp(max(path.stat().st_mtime for path in folder.iterdir()), UTC):%Y-%m-%dT%H:%M:%SZ}"


def main(folder: str, out: Path = FOLDER / "gpu_candidate_cost.json") -> None:
    """Read, compute, write."""
    earlier = json.loads(out.read_text(encoding="utf-8"))
    raw, kept = filled(Path(folder), earlier["raw"], earlier["date_utc"])
    path = Path(folder, "gpu_host.json")
    if path.exists():
        host = json.loads(path.read_text(encoding="utf-8"))
        where, date_utc = host_of(host["environment"]), host["date_utc"]
    else:
        host, where, date_utc = earlier["raw"]["gpu_host"], MeasuredHost(**earlier["host"]), newest(Path(folder))
        kept["gpu_host"] = earlier["raw"]["of_an_earlier_run"].get("gpu_host", earlier["date_utc"])
    written = MeasurementFile(
        name="gpu_candidate_cost",
        date_utc=date_utc,
        command=COMMAND,
        host=where,
        figures=figures(host, raw["kernelbench"]) | evaluator_figures(raw["kernelbench_evaluator"])
        | demo_figures(raw["demo"]) | server_figures(raw["server_run"]),
        raw=without_places({
            "gpu_host": {k: v for k, v in host.items() if k != "environment"}, **raw, "of_an_earlier_run": kept,
        }),
    )  # fmt: skip
    out.write_text(written.model_dump_json(indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

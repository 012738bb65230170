"""The program that proves the saving on a GPU host, tried on the CPU device; and the figures that it writes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

import ladder_figures
from bench_streams import SOURCES, STREAM, played, stream, tasks, well, went
from ladder_rows import chosen, extrapolated
from ladder_run import within
from measurement import read_measurement

from kernelgate.budget.ladder.stream import read_stream
from kernelgate.server.bench.record import truth_of
from kernelgate.server.bench.report import WarmUp, stream_report

HERE = Path(__file__).resolve().parent
LIMIT_S = 280
pytestmark = pytest.mark.timeout(LIMIT_S + 20)
EVALUATOR = """from types import SimpleNamespace


def eval_kernel_against_ref(reference, candidate, **settings):
    assert "class Model(" in reference and "class ModelNew(" in candidate
    assert (settings["num_correct_trials"], settings["num_perf_trials"], settings["backend"]) == (5, 100, "triton")
    return SimpleNamespace(correctness=True, runtime=1.5, metadata={})
"""
HOST = {
    "device": "NVIDIA H200", "driver": "1", "cpu": "c", "python": "3.12", "torch": "2.11", "triton": "3.6",
    "kernelgate": "0",
}  # fmt: skip


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "ladder_run.py"), str(folder / "out.json"), "--device", "cpu", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def checkout(folder: Path) -> Path:
    """What stands for one of KernelBench: its evaluator says that all is well."""
    (folder / "src" / "kernelbench").mkdir(parents=True)
    (folder / "src" / "kernelbench" / "eval.py").write_text(EVALUATOR)
    return folder


def two_candidates(folder: Path) -> list[str]:
    """The options of a run on a stream of two, one of them right, with all that is written below a folder."""
    some = stream(folder, sources={name: SOURCES[name] for name in ("typo", "fused")})
    return [
        "--streams", str(some), "--tasks", str(tasks(folder / "tasks")), "--kernelbench", str(checkout(folder / "kb")),
        "--seconds", "260", "--rows-seconds", "30", "--write", "--into", str(folder / "measurements"),
    ]  # fmt: skip


def judged_before(folder: Path) -> None:
    """An OUT.json in which both passes over that stream are whole, and nothing else was done."""
    candidates = read_stream(folder / "sums.jsonl")
    lines = tuple(line.model_copy(update={"note": line.id}) for line in candidates.lines)
    worth = {"compile": went("built"), "check_correctness": went("correct"), "quick_time": went("maybe_faster", 2.0)}

    def answer(name: str, tool: str) -> dict[str, Any]:
        return went("build_failed") if name == "typo" else worth.get(tool, went("faster", 2.0))

    flat, _ = played(answer, stream=candidates.model_copy(update={"lines": lines}))
    report = stream_report(candidates, (flat,), ("flat",), {"halving": {}}, ledger="", warm_up=None)
    told = {"date_utc": "2026-12-01T00:00:00Z", "host": HOST, "exit": 0, "report": report.model_dump(mode="json")}
    (folder / "out.json").write_text(json.dumps({"streams": {"sums": told}}))


def read(folder: Path) -> Any:
    """What was written of the one stream."""
    return json.loads((folder / "out.json").read_text())["streams"]["sums"]


def test_right_candidates_are_judged_the_other_ways_each_in_a_process_of_its_own(tmp_path: Path) -> None:
    options = two_candidates(tmp_path)
    judged_before(tmp_path)
    done = run(tmp_path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    told = read(tmp_path)
    assert told["correct"] == 1
    assert told["rows"]["kernelbench"]["fused"]["runtime_ms"] == 1.5
    timed = told["rows"]["do_bench"]["fused"]
    assert timed["correct"] is True
    assert 0 < timed["device_s"] < timed["wall_s"]
    found = read_measurement(tmp_path / "measurements" / "ladder_cpu.json")
    assert found.figures["flat_wall_ratio_do_bench"] > 0
    assert found.figures["flat_wall_ratio_kernelbench"] > 0
    before = (tmp_path / "out.json").read_text()
    assert run(tmp_path, *options).returncode == 0
    assert (tmp_path / "out.json").read_text() == before, "what is whole already is not run again"


@pytest.mark.long
def test_a_whole_run_plays_the_stream_and_writes_the_figures_of_each_rule(tmp_path: Path) -> None:
    done = run(tmp_path, *two_candidates(tmp_path), "--data", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    told = read(tmp_path)
    assert told["exit"] == 0, told["said"]
    assert told["rows"]["do_bench"]["fused"]["correct"] is True
    assert (tmp_path / "out_sums.json").exists(), "the report itself"
    assert list((tmp_path / "kept").glob("*/sums/ledger.db"))
    found = read_measurement(tmp_path / "measurements" / "ladder_cpu.json")
    assert found.host.device == "cpu"
    expected = {"halving_gpu_s_ratio_flat", "halving_false_drops", "threshold_replayed_gpu_s_ratio_flat"}
    assert expected <= set(found.figures)
    assert str(tmp_path) not in (tmp_path / "measurements" / "ladder_cpu.json").read_text()


def test_at_its_limit_a_command_gets_ctrl_c_and_may_still_write_what_it_has() -> None:
    writes = "trap 'echo partial; exit 130' INT; while :; do :; done"
    assert within(["sh", "-c", writes], 1.0) == (130, "partial\n")
    assert within(["sh", "-c", "trap '' INT; while :; do :; done"], 0.5, 0.5) == (-9, "")
    assert within(["sh", "-c", "echo done"], 60.0) == (0, "done\n")


def test_without_time_for_it_a_stream_is_not_begun_and_that_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "--streams", str(stream(tmp_path)), "--seconds", "1")
    assert done.returncode == 1
    assert "no report of" in done.stderr
    assert "no time was left" in (tmp_path / "out.json").read_text()


def test_a_stream_that_is_not_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "--streams", "nothing")
    assert done.returncode == 2
    assert "there is no stream nothing" in done.stderr


FLAT, _ = played(well)


def told(walls_s: dict[str, float], *, halving_admits: tuple[str, ...] = ("b", "c"), date: str = "2026-12-01") -> Any:
    """What a run wrote of a stream of three candidates, all right; each call of it was a device second."""
    asked = tuple(
        each.model_copy(update={"wall_s": 1.0})
        if each.rung != "precise" or each.id in halving_admits
        else each.model_copy(update={"outcome": None, "refused": "rule", "said": "No.", "wall_s": 0.0})
        for each in FLAT.asked
    )  # fmt: skip
    halving = FLAT.model_copy(update={"rule": "halving", "asked": asked})
    report = stream_report(
        STREAM, (FLAT, halving), ("flat", "halving"), {"threshold": {}}, ledger="", warm_up=WarmUp(device_s=1, wall_s=1)
    )
    rows = {"kernelbench": {name: {"wall_s": seconds} for name, seconds in walls_s.items()}}
    return {
        "date_utc": f"{date}T00:00:00Z", "host": HOST, "correct": 3, "rows": rows,
        "report": report.model_dump(mode="json"),
    }  # fmt: skip


def test_figures_are_of_all_streams_with_the_rule_first() -> None:
    found = ladder_figures.figures({"s": told({"a": 44.0, "b": 44.0})})
    assert found["halving_gpu_s_ratio_flat"] == round(12 / 11, 4)
    assert found["halving_gpu_s_ratio_flat_s"] == round(12 / 11, 4)
    assert found["halving_regret_pct_max"] == 0
    assert found["halving_false_drops"] == 0
    assert found["halving_wall_ratio_kernelbench"] == 12, "44 s for each of three right ones, against 11 s for all"
    assert found["halving_wall_ratio_kernelbench_low"] == found["halving_wall_ratio_kernelbench_high"] == 12
    assert found["threshold_replayed_gpu_s_ratio_flat"] == 1
    assert "halving_wall_ratio_do_bench" not in found


def test_a_row_that_failed_is_no_measure_of_the_way() -> None:
    one = told({"a": 44.0, "b": 44.0})
    one["rows"]["kernelbench"]["c"] = {"wall_s": 180.0, "error": "longer than 180 s"}
    assert ladder_figures.walls_of(one, "kernelbench") == [44.0, 44.0]


def test_calls_are_pooled_and_each_stream_keeps_its_own_date(tmp_path: Path) -> None:
    old, new = told({"a": 1.0}), told({"a": 2.0}, date="2026-12-02")
    streams = ladder_figures.merged({"s": old, "t": old}, {"s": new, "u": {"ended": "no time was left"}})
    found = read_measurement(ladder_figures.write("ladder", streams, tmp_path))
    assert found.date_utc == "2026-12-02T00:00:00Z"
    raw: Any = found.raw
    assert {name: each["date_utc"][:10] for name, each in raw["streams"].items()} == {
        "s": "2026-12-02", "t": "2026-12-01",
    }  # fmt: skip
    assert "passes" not in raw["streams"]["s"]["report"]


def test_a_partial_stream_does_not_take_the_place_of_a_whole_one() -> None:
    whole, partial = told({"a": 1.0}), told({"a": 2.0})
    partial["report"]["why_partial"] = ["Ctrl-C"]
    assert ladder_figures.merged({"s": whole}, {"s": partial})["s"] is whole
    assert ladder_figures.merged({"s": partial}, {"s": whole})["s"] is whole


def test_an_estimate_has_an_interval_around_the_mean() -> None:
    found = extrapolated([1.0, 2.0, 3.0, 4.0, 5.0], 40)
    assert found["value"] == 120
    assert 40 < found["low"] < 120 < found["high"] < 200
    assert extrapolated([2.0], 10) == {"value": 20, "low": 20, "high": 20}


def test_the_candidates_of_the_other_ways_are_drawn_from_the_right_ones_and_can_be_drawn_again() -> None:
    truth = truth_of(STREAM, FLAT)
    names, count = chosen(STREAM, truth, 2, 7)
    assert len(names) == 2
    assert count == 3
    assert (names, count) == chosen(STREAM, truth, 2, 7)

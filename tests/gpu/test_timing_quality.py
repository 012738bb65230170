"""The program that measures how good the timing is: its figures, its clock, and what it goes on after. No GPU here."""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timing_methods
import timing_quality
import torch
from gpu_path import ROOT
from timing_candidates import PERCENTS, bad, differing, more_rows, more_rows_task, repeated
from timing_figures import binomial_tail, figures, percentile, pooled, share_upper, spread_pct

sys.path.insert(0, str(ROOT / "tests/benchmarks"))
from measurement import read_measurement

from kernelgate.tasks.model import DeviceKind
from kernelgate.tools.kit.wire import DeviceRef

CPU = DeviceRef(kind="cpu")
HOST = {
    "device": "NVIDIA H200", "driver": "580.1", "cpu": "Some CPU", "python": "3.12.3",
    "torch": "2.11.0", "triton": "3.6.0", "kernelgate": "0.1.0",
}  # fmt: skip


def timed(step: str, part: str, verdict: str, ratio: float = 1.0, **more: Any) -> dict[str, Any]:
    """A run as the program writes it."""
    return {
        "step": step, "part": part, "file": 0, "tool": "precise_time", "verdict": verdict, "summary": verdict,
        "least_floor_verdict": verdict, "ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01, "lease_s": 0.5,
        "workloads": [{"workload": "w", "ratio": ratio, "pairs": 24}], **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("false", "runs", "upper"), [(0, 600, 1 - 0.05 ** (1 / 600)), (0, 20, 0.1391), (1, 20, 0.2161), (20, 20, 1.0)]
)
def test_the_upper_bound_of_a_share_is_the_exact_one(false: int, runs: int, upper: float) -> None:
    assert share_upper(false, runs) == pytest.approx(upper, abs=5e-5)


@pytest.mark.parametrize(("successes", "trials", "share"), [(3, 600, 0.0129), (0, 1, 0.5), (40, 100, 0.4), (5, 5, 0.3)])
def test_the_tail_is_the_sum_of_the_binomial_terms(successes: int, trials: int, share: float) -> None:
    terms = [math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(successes + 1)]
    assert binomial_tail(successes, trials, share) == pytest.approx(sum(terms))
    if successes < trials:
        assert binomial_tail(successes, trials, share_upper(successes, trials)) == pytest.approx(0.05)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(1, 21)]
    assert (percentile(values, 0.95), percentile(values, 1.0), percentile([7.0], 0.95)) == (19.0, 20.0, 7.0)
    assert spread_pct([1.0, 1.02, 0.98]) == pytest.approx(4.0)


def test_false_classes_are_counted_over_all_files_and_per_task() -> None:
    first = {"runs": [timed("aa", "softmax", "same"), timed("aa", "softmax", "faster", 1.03)]}
    second = {"runs": [timed("aa", "softmax", "ambiguous"), timed("aa", "matmul", "same"),
                       {"step": "aa", "part": "matmul", "fault": "it died"}]}  # fmt: skip
    found = figures(pooled([first, second]))
    assert (found["aa_runs"], found["aa_false"], found["aa_false_share"], found["aa_without_class"]) == (4, 1, 0.25, 1)
    assert found["aa_false_share_upper"] == pytest.approx(0.7514, abs=1e-4)
    assert (found["aa_runs_softmax"], found["aa_false_softmax"], found["aa_false_matmul"]) == (3, 1, 0)
    assert found["aa_half_width_pct_median"] == pytest.approx(1.0)


def test_a_found_slow_down_is_one_that_was_called_slower() -> None:
    runs = [timed("sensitivity", "2", verdict, 0.98) for verdict in ("slower", "slower", "ambiguous", "same")]
    found = figures([*runs, timed("sensitivity", "0.5", "same")])
    assert (found["found_2pct_share"], found["found_2pct_runs"], found["found_0_5pct_share"]) == (0.5, 4, 0.0)


def test_the_worst_spread_is_the_one_that_is_told() -> None:
    runs = [timed("repeat", part, "faster", ratio) for part, ratio in (("a", 2.0), ("a", 2.1), ("b", 3.0), ("b", 3.0))]
    found = figures(runs)
    assert found["repeat_spread_pct"] == found["repeat_spread_pct_a"] == pytest.approx(100 * 0.1 / 2.05, abs=1e-4)
    assert found["repeat_spread_pct_b"] == 0


def test_a_quick_class_is_overturned_by_the_opposite_precise_one() -> None:
    runs: list[dict[str, Any]] = []
    pairs = [
        ("maybe_faster", "slower"),
        ("clearly_slower", "slower"),
        ("undecided", "faster"),
        ("maybe_faster", "same"),
    ]
    for number, (quick, precise) in enumerate(pairs):
        runs.append(timed("cost", "softmax", quick, candidate=str(number)) | {"tool": "quick_time", "lease_s": 0.1})
        runs.append(timed("cost", "softmax", precise, candidate=str(number)))
    found = figures(runs)
    assert (found["quick_overturned_share"], found["quick_and_precise_runs"]) == (0.25, 4)
    assert (found["quick_lease_s_median"], found["precise_lease_s_p95"]) == (0.1, 0.5)


def test_methods_are_held_against_the_device_s_own_record_or_else_against_ours() -> None:
    def reading(method: str, part: str, value: float) -> dict[str, Any]:
        return {"step": "against", "part": part, "file": 0, "method": method, "value": value, "gpu_s": 0.2}

    runs = [reading("do_bench", "add", 12.0), reading("do_bench", "add", 12.0), reading("activity", "add", 10.0)]
    runs += [reading("ours", "sum", 5.0), reading("do_bench", "sum", 6.0), reading("ours_pairs", "sum", 1.0)]
    found = figures(runs)
    assert found["do_bench_off_activity_pct_add"] == pytest.approx(20)
    assert found["do_bench_off_ours_pct_sum"] == pytest.approx(20)
    assert {"ours_pairs_spread_pct_sum", "activity_us_median_add"} <= set(found)
    assert "ours_pairs_us_median_sum" not in found


def test_a_bad_candidate_that_is_called_faster_is_counted() -> None:
    assert figures([timed("bad", "grows", "faster"), timed("bad", "empty", "wrong_values")]) == {
        "bad_runs": 2, "bad_faster": 1,
    }  # fmt: skip


def test_a_step_has_a_first_round_and_ends_with_its_time_or_its_count() -> None:
    assert list(timing_quality.rounds(0.0, 5)) == [0]
    assert list(timing_quality.rounds(1_000.0, 3)) == [0, 1, 2]
    shares = dict(timing_quality.shared(("a", "b"), 100.0))
    assert shares["a"] == pytest.approx(50, abs=1)
    assert shares["b"] == pytest.approx(100, abs=1)


def test_a_step_is_asked_for_by_name_seconds_and_part() -> None:
    asked = timing_quality.Asked.of("aa:90:softmax")
    assert (asked.name, asked.seconds, asked.parts) == ("aa", 90.0, ("softmax",))
    assert timing_quality.Asked.of("sensitivity").parts == PERCENTS
    for text in ("what", "aa:90:what", "aa:soon"):
        with pytest.raises((argparse.ArgumentTypeError, ValueError), match=r"what|soon"):
            timing_quality.Asked.of(text)


def test_a_step_that_fails_is_written_down_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("no such luck")

    def works(session: object, parts: Any, seconds: float, keep: timing_quality.Keep) -> None:
        keep(part=parts[0], **{name: value for name, value in timed("aa", "", "same").items()
                               if name not in ("step", "part", "file")})  # fmt: skip

    steps = {"cost": timing_quality.Step(breaks, 5, ("softmax",)), "aa": timing_quality.Step(works, 5, ("softmax",))}
    monkeypatch.setattr(timing_quality, "STEPS", steps)
    out = tmp_path / "deep" / "out.json"
    asked = [timing_quality.Asked.of("cost"), timing_quality.Asked.of("aa")]
    timing_quality.run(CPU, out, asked, "a command")
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [step["ended"] for step in found["steps"]] == ["RuntimeError: no such luck", "done"]
    assert (found["figures"]["aa_runs"], found["command"], found["host"]["device"]) == (1, "a command", "cpu")


def test_several_files_become_one_measurement_unless_their_hosts_differ(tmp_path: Path) -> None:
    for number in (1, 2):
        wrote = {"date_utc": f"2026-12-01T0{number}:00:00Z", "command": f"c{number}", "host": HOST, "steps": [],
                 "floors": {"softmax": 0.005}, "runs": [timed("aa", "softmax", "same")]}  # fmt: skip
        (tmp_path / f"{number}.json").write_text(json.dumps(wrote), encoding="utf-8")
    files = [str(tmp_path / "1.json"), str(tmp_path / "2.json")]
    timing_quality.main([*files, "--write", "--folder", str(tmp_path)])
    found = read_measurement(tmp_path / "timing_quality.json")
    assert (found.figures["aa_runs"], found.command, found.date_utc) == (2, "c1; c2", "2026-12-01T02:00:00Z")
    assert found.host.device == "NVIDIA H200"
    assert figures(json.loads(found.model_dump_json())["raw"]["runs"]) == found.figures
    other = json.loads((tmp_path / "2.json").read_text(encoding="utf-8"))
    other["host"]["torch"] = "2.12.0"
    with pytest.raises(ValueError, match="not pooled"):
        timing_quality.measurement([json.loads((tmp_path / "1.json").read_text(encoding="utf-8")), other])


@pytest.mark.parametrize("percent", PERCENTS)
def test_more_work_is_so_many_more_rows_with_the_same_answer(percent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    relu = torch.relu
    monkeypatch.setattr(torch, "relu", lambda x: rows.append(x.shape[0]) or relu(x))
    reference, candidate = {}, {}
    exec(more_rows_task().source.replace("16000, 4096", "2000, 8"), reference)
    exec(more_rows(percent), candidate)
    (x,) = reference["get_inputs"]()
    assert torch.equal(reference["Model"]()(x), candidate["ModelNew"]()(x))
    assert rows[1] / rows[0] == pytest.approx(1 + float(percent) / 100)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_candidate_is_a_source_for_a_task_of_the_device(kind: DeviceKind) -> None:
    asked = [(task, source) for task, source, _ in bad(kind).values()] + list(repeated(kind).values())
    for name in timing_quality.TASKS:
        task = timing_quality.bundled(name)
        asked += [(task, source) for source in differing(task, kind).values()]
    for task, source in asked:
        compile(source, task.name, "exec")
        assert "ModelNew" in source
        assert task.workloads_on(kind, held_out=False)
    assert set(timing_quality.STEPS["bad"].parts) == set(bad(kind))


ON_A_FAKE_GPU = """
import json, sys, tempfile
sys.path[:0] = sys.argv[1:]
import fake_gpu, timing_methods as methods, torch
fake_gpu.install(tempfile.mkdtemp())
methods.cuda_driver.Driver = fake_gpu.FakeDriver
methods.FILL_BYTES, methods.TRIALS, methods.BLOCKS, methods.REPEATS, methods.HOT_S = 1 << 16, 5, 2, 1, 0.01
methods.STANDARD_ERROR = 10.0
for name in ("do_bench", "activity"):  # Triton's own, and the profiler of a real device
    methods.METHODS.pop(name)
with torch.no_grad():
    methods.run(methods.bench_of("add_64kb", 3), 30.0, lambda found: print(json.dumps(found)))
"""


def test_the_other_methods_run_on_a_stand_in_for_a_gpu() -> None:
    folders = [str(ROOT / "tests" / name) for name in ("worker", "gpu")]
    done = subprocess.run(
        [sys.executable, "-c", ON_A_FAKE_GPU, *folders], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["method"] for one in found] == ["kernelbench", "nvbench_cold", "nvbench_hot", "ours", "ours_pairs"]
    assert all(one["value"] > 0 and one["gpu_s"] > 0 for one in found)


def test_the_device_s_own_record_counts_the_kernels_of_the_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    once = [("max", 0.0, 9.0), ("sum", 10.0, 9.0)]
    cold = [("spin", 0.0, 5_000.0)]
    for _ in range(timing_methods.ACTIVITY_CALLS):
        cold += [("fill", 0.0, 60.0), ("max", 60.0, 2.0), ("sum", 62.0, 3.0)]
    bench: Any = SimpleNamespace(once=lambda: None)
    monkeypatch.setattr(timing_methods, "kernels_of", lambda work: once if work is bench.once else cold)
    assert timing_methods.activity(bench).value == 5.0
    cold.pop()
    with pytest.raises(RuntimeError, match="59 kernels were recorded of 30 calls"):
        timing_methods.activity(bench)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_whole_program_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_quality, "MOST_CALIBRATIONS", 1)
    monkeypatch.setattr(timing_quality, "GRACE_S", 120)  # a first call takes longer than the seconds asked for
    steps = ["aa:1:softmax", "sensitivity:1:2", "repeat:1:softmax", "cost:1:rmsnorm", "against:1", "bad:1"]
    asked = [word for step in steps for word in ("--step", step)]
    timing_quality.main([str(tmp_path / "out.json"), "--device", "cpu", *asked])
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {run["step"] for run in found["runs"]} == {"aa", "sensitivity", "repeat", "cost", "bad"}
    assert not [run for run in found["runs"] if "fault" in run]
    assert [step["step"] for step in found["steps"] if step["ended"] != "done"] == ["against"]

"""docs/measurements/README.md is what the measurements beside it make of it, and bad files are named."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT

sys.path.insert(0, str(ROOT / "tests/benchmarks"))
import collect
import measurement
from bench_ladder_noise import h200_noise

GOOD = {
    "name": "server_cost",
    "date_utc": "2026-11-30T10:00:00Z",
    "command": "make bench BENCH=server_cost",
    "host": {
        "device": "cpu", "driver": "", "cpu": "Some CPU", "python": "3.11.7",
        "torch": "2.13.0+cpu", "triton": "3.9.0", "kernelgate": "0.1.0",
    },
    "figures": {"tools_list_s_median": 0.98765, "server_rss_mb": 101},
    "raw": {"samples_s": [0.9, 1.0]},
}  # fmt: skip


def file_with(folder: Path, **changes: object) -> Path:
    path = folder / "server_cost.json"
    path.write_text(json.dumps({**GOOD, **changes}), encoding="utf-8")
    return path


def test_the_page_in_the_tree_is_what_the_measurements_make_of_it() -> None:
    command = [sys.executable, str(ROOT / "tests/benchmarks/collect.py"), "--check"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0, "run tests/benchmarks/collect.py"


def test_every_figure_stands_in_the_table_with_date_and_host(tmp_path: Path) -> None:
    text = collect.page([measurement.read_measurement(file_with(tmp_path))])
    where = "2026-11-30 | cpu, Some CPU, Python 3.11.7, torch 2.13.0+cpu, triton 3.9.0 |"
    assert f"| [server_cost](server_cost.json) | `tools_list_s_median` | 0.9877 | {where}" in text
    assert f"| [server_cost](server_cost.json) | `server_rss_mb` | 101 | {where}" in text
    assert "| server_cost | `make bench BENCH=server_cost` |" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"figures": {"x_s": float("nan")}}, "server_cost.json: figures.x_s"),
        ({"figures": {"x_s": "1"}}, "server_cost.json: figures.x_s"),
        ({"host": {}}, "server_cost.json: host.device"),
        ({"extra": 1}, "server_cost.json: extra"),
        ({"name": "other"}, "name and file must agree"),
    ],
)
def test_a_file_that_is_no_measurement_is_named_with_the_reason(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(measurement.BadMeasurement, match=words.replace(".", r"\.")):
        measurement.read_measurement(file_with(tmp_path, **changes))


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (1234567, "1,234,567"), (0.000123456, "0.0001235"), (98765.4, "98,765")]
)
def test_figures_are_shown_with_four_digits(value: float, text: str) -> None:
    assert collect.shown(value) == text


def test_a_written_measurement_reads_back_with_this_host(tmp_path: Path) -> None:
    path = measurement.write_measurement("server_cost", {"x_s_median": 0.5}, [0.4, 0.6], folder=tmp_path)
    found = measurement.read_measurement(path)
    assert (found.figures, found.raw, found.command) == (
        {"x_s_median": 0.5},
        [0.4, 0.6],
        "make bench BENCH=server_cost",
    )
    assert (found.host.device, found.host.torch) == ("cpu", measurement.package_version("torch"))


def test_a_figure_that_is_no_number_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="finite number"):
        measurement.write_measurement("server_cost", {"x_s_median": float("inf")}, [], folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_speed_of_the_interpreter_before_and_after_stands_beside_the_figures(tmp_path: Path) -> None:
    before_ms = measurement.plain_python_loop_ms()
    figures, raw = measurement.with_pace({"x_s_median": 0.5}, {"x_s": [0.5]}, before_ms)
    readings = raw["plain_python_loop_ms"]
    assert isinstance(readings, dict)
    assert (readings["before"], raw["x_s"], figures["x_s_median"]) == (before_ms, [0.5], 0.5)
    after_ms = readings["after"]
    assert isinstance(after_ms, list)
    assert len(after_ms) == len(before_ms) == measurement.LOOPS
    assert min(before_ms) > 0 < figures["plain_python_loop_ms_median"]
    written = measurement.write_measurement("server_cost", figures, raw, folder=tmp_path)
    assert measurement.read_measurement(written).raw == raw


def test_the_noise_of_the_sweep_is_read_from_what_was_measured() -> None:
    noise = h200_noise()
    assert len(noise.costs) == len(noise.quick_errors) == 16
    assert all(cost.check_s < cost.precise_s and cost.quick_s < cost.precise_s for cost in noise.costs)
    assert max(noise.quick_errors) > 0.2

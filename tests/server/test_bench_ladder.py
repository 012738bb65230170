"""`kernelgate bench ladder` as a process, with a real server, a real worker on the CPU device and a small task."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bench_streams import SOURCES, stream, tasks

from kernelgate.budget.ladder.recorded import recorded_truths
from kernelgate.budget.ledger import Ledger
from kernelgate.server.bench.report import LadderReport, read_report
from kernelgate.server.run_commands import audit_book

LIMIT_S = 300
STARTS_WITHIN_S = 60

pytestmark = pytest.mark.timeout(LIMIT_S + 30)


def command(folder: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "kernelgate.server", "bench", "ladder", str(stream(folder)), "--device", "cpu",
        "--tasks", str(tasks(folder / "tasks")), "--data", str(folder / "kept"), "-o", str(folder / "report.json"),
        *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One whole run: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("bench")
    run = subprocess.run(
        command(folder, "--plots", str(folder / "plots"), "--seed", "3"), capture_output=True, text=True,
        timeout=LIMIT_S, check=False, env=os.environ | {"KERNELGATE_HOME": str(folder / "home"), "COLUMNS": "200"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return folder, run.stdout


@pytest.fixture(scope="module")
def report(done: tuple[Path, str]) -> LadderReport:
    return read_report(done[0] / "report.json")


def test_the_truth_has_each_candidate_as_far_as_it_came(report: LadderReport) -> None:
    (one,) = report.streams
    assert not report.partial
    assert one.truth is not None
    furthest = {tried.id: tried.outcomes[-1].rung.value for tried in one.truth.tried}
    assert furthest == {"typo": "compile", "wrong": "check", "fused": "precise", "again": "precise", "slow": "precise"}
    assert one.unit == "cpu_s"
    assert one.device


def test_each_pass_paid_for_its_own_measurements_and_a_twin_for_none(report: LadderReport) -> None:
    (one,) = report.streams
    assert {each.rule for each in one.passes} == {"flat", "halving"}
    for each in one.passes:
        charged = {(asked.id, asked.rung.value): asked.outcome.device_s for asked in each.asked if asked.outcome}
        assert charged["fused", "precise"] > 0, "answered from the book of the other pass"
        assert charged["again", "precise"] == 0
        assert each.candidates["again"] == each.candidates["fused"]
        assert all(asked.wall_s > 0 for asked in each.asked)


def test_the_ledger_that_was_kept_is_the_evidence(report: LadderReport, done: tuple[Path, str]) -> None:
    (one,) = report.streams
    with Ledger.open(done[0] / "kept" / one.ledger) as ledger:
        for each in one.passes:
            paid_s = ledger.query("SELECT sum(cpu_s) AS s FROM results WHERE run_id = ?", each.run_id)[0]["s"]
            told_s = sum(asked.outcome.device_s for asked in each.asked if asked.outcome is not None)
            assert told_s == pytest.approx(paid_s)
        recorded = recorded_truths(ledger)
    assert [len(truth.tried) for truth in recorded.truths] == [len(SOURCES) - 1], "the flat pass alone, twins as one"
    assert audit_book(done[0] / "kept" / one.ledger, None, as_json=True, run_id=None) == 0


def test_live_and_replayed_rules_are_told_apart_and_both_compared(report: LadderReport, done: tuple[Path, str]) -> None:
    (one,) = report.streams
    assert {(row.rule, row.live) for row in one.compared} == {
        ("flat", True), ("halving", True), ("halving", False), ("threshold", False),
    }  # fmt: skip
    (flat,) = [row for row in one.compared if row.rule == "flat"]
    assert flat.regret_pct in (0.0, None), "none where no timing was certain enough"
    assert flat.gpu_s_ratio_flat == pytest.approx(1.0)
    printed = done[1]
    assert "flat, the truth" in printed
    assert "halving, replayed" in printed
    assert all(f"under {rule}: 5 candidates …" in printed for rule in one.order), "a word for each pass, in a pipe too"
    assert f"ledger: {done[0] / 'kept' / one.ledger}" in printed
    ends = ("Where the ladder lost:", "No rule spent more than flat or found less.", "no best candidate was found.")
    assert any(end in printed for end in ends)


def test_plots_are_drawn_at_once_and_again_later_from_the_report(done: tuple[Path, str]) -> None:
    again = subprocess.run(
        [sys.executable, "-m", "kernelgate.server", "bench", "plot", "report.json", "-o", "again"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=done[0],
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    # On a noisy host no timing may be certain enough for a best so far: then there is nothing to draw, both times.
    first, second = (
        {path.name: path.read_bytes() for path in (done[0] / place).iterdir()} for place in ("plots", "again")
    )
    assert first == second


def test_ctrl_c_leaves_a_partial_report_and_no_server(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=os.environ | {"KERNELGATE_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    ledger = tmp_path / "kept" / "sums" / "ledger.db"
    until_s = time.monotonic() + STARTS_WITHIN_S
    while not ledger.exists() and process.poll() is None and time.monotonic() < until_s:
        os.sched_yield()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the server is told too
    printed, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, printed
    assert "Traceback" not in printed
    written: dict[str, Any] = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert written["partial"]
    assert "Ctrl-C" in written["streams"][0]["why_partial"]
    assert len(SOURCES) == written["streams"][0]["candidates"]
    with Ledger.open(ledger) as book:
        assert not book.query("SELECT 1 FROM jobs WHERE state IN ('queued', 'running')")

"""The coach's bad input without a GPU: stand-ins that do what they are for, and how a case counts."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import coach_bad
import pytest
import torch
from coach_bad import CASES, HANGS, REPORT_BYTES, TOO_LARGE, BadCase, hiding, is_right, put_stand_in, told_of
from coach_run import figures

from kernelgate.tools.worker import nsight, protocol
from kernelgate.tools.worker.nsight import Nsight, kept_for

CASE = BadCase("one", "source", "took too long", limit_s=1)


class Kept:
    """What a case left in the book."""

    def __init__(self) -> None:
        self.told: dict[str, dict[str, Any]] = {}

    def left_s(self) -> float:
        return 60.0

    def keep(self, part: str, name: str, told: dict[str, Any]) -> None:
        self.told[f"{part}.{name}"] = told


def note_of(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, limit_s: float) -> str:
    """What a profile of full depth says with the stand-in on the path."""
    (folder / "candidate").mkdir()
    (folder / "candidate" / "candidate.py").write_text(source)
    put_stand_in(folder, there=True)
    monkeypatch.setenv("PATH", str(folder))
    question = protocol.Inspect(seed=1, tf32=False, limit_s=limit_s)
    kept = kept_for(torch.nn.Linear(2, 2), ((2, 2), {}), ((torch.ones(2),), {}), question, "m")
    return Nsight(folder).inspect(question, kept).note


def test_cases_have_names_and_sources_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len({case.source for case in CASES}) == len(CASES)


def test_the_limits_of_all_cases_leave_each_the_time_of_a_hanging_ncu() -> None:
    hanging = next(case for case in CASES if HANGS in case.source)
    assert (nsight.READ_BYTES < REPORT_BYTES, hanging.limit_s < coach_bad.HANGS_S) == (True, True)


def test_a_stand_in_that_hangs_is_ended_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began_s = time.monotonic()
    assert "took too long" in note_of(tmp_path, monkeypatch, f"{HANGS}\n", 1.0)
    assert time.monotonic() - began_s < coach_bad.HANGS_S / 2


def test_a_stand_in_that_writes_too_much_leaves_a_report_that_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert note_of(tmp_path, monkeypatch, f"{TOO_LARGE}\n", 20.0) == "ncu's report of 65 MiB is too large to be read"
    assert (tmp_path / "kernelgate.ncu-rep").stat().st_blocks * 512 < 1 << 20


def test_a_stand_in_that_is_not_wanted_is_not_found(tmp_path: Path) -> None:
    put_stand_in(tmp_path, there=True)
    put_stand_in(tmp_path, there=False)
    assert list(tmp_path.iterdir()) == []


def test_what_a_server_must_not_see_is_hidden_from_it_or_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(coach_bad, "to_hide", lambda: [str(program)])
    look = [sys.executable, "-c", f"import shutil; print(shutil.which('ncu', path={str(tmp_path)!r}))"]
    try:
        before = hiding(tmp_path)
    except OSError as error:
        assert "cannot be hidden" in str(error)  # noqa: PT017  both ends are right: who runs this decides which
        return
    assert subprocess.run([*before, *look], capture_output=True, text=True, check=True).stdout == "None\n"


def test_every_ncu_on_the_path_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ncu").touch()
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in ("one", "other")))
    assert {str(tmp_path / name / "ncu") for name in ("one", "other")} <= set(coach_bad.to_hide())


@pytest.mark.parametrize(
    ("told", "right"),
    [
        ({"profile": {"missing": "ncu was stopped: it took too long", "lease_s": 4.0}}, True),
        ({"profile": {"missing": "ncu was stopped: it took too long", "lease_s": 6.0}}, False),
        ({"profile": {"missing": "", "lease_s": 1.0}}, False),
        ({"quick": {"summary": "took too long"}}, True),
        ({"error": "took too long"}, False),
    ],
)
def test_a_case_is_right_if_the_reply_says_so_and_the_candidate_paid_no_more_than_it_may(
    told: dict[str, Any], right: bool
) -> None:
    assert is_right(CASE, told) is right


def test_a_case_that_takes_too_long_is_written_down_and_its_server_used_no_more() -> None:
    class Silent:
        def call(self, tool: str, **arguments: Any) -> None:
            signal.pause()  # until the case's alarm

    kept, silent = Kept(), Silent()
    assert not told_of(kept, CASE, silent)  # type: ignore[arg-type]  # nothing else of a server is asked
    assert json.loads(json.dumps(kept.told)) == {
        "bad.one": {"right": False, "says": CASE.says, "error": "it took longer than 1 s"}
    }


def test_another_profiler_counts_as_attached_if_it_samples_and_says_why_if_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = (
        "import sys\nprint('{\"ready\": 1}', flush=True)\nfor word in sys.stdin: print('{\"begun\": true}', flush=True)"
    )
    case = BadCase("one", "", coach_bad.SAMPLES)
    for program, right in ((answers, True), ("print('no cupti')", False)):
        monkeypatch.setattr(coach_bad, "PROGRAM", program)
        with coach_bad.sampling() as beside:
            assert is_right(case, {"profile": {"beside": beside}}) is right
    assert beside.startswith("no cupti")


def test_figures_count_the_cases_that_were_right() -> None:
    assert figures({"bad": {"one": {"right": True}, "other": {"right": False}}}) == {"bad_total": 2, "bad_right": 1}

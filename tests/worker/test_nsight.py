"""Nsight Compute's part without it: stand-ins for the program, and a table as it prints one."""

import csv
import math
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.worker import nsight, protocol
from kernelgate.tools.worker.nsight import Nsight, ended, kept_for, why_not
from kernelgate.tools.worker.nsight_tables import hot_of, kernels_of, lines_of, number_of

QUESTION = protocol.Inspect(seed=1, tf32=False, limit_s=20.0)
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
NAMES = (
    "ID", "Kernel Name", "gpu__time_duration.sum", "launch__grid_size", "launch__block_size",
    "launch__registers_per_thread", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal",
    STALLED.format("long_scoreboard"), STALLED.format("selected"), STALLED.format("barrier"), STALLED.format("wait"),
)  # fmt: skip
UNITS = ("", "", "ms", "", "", "register/thread", "%", "sectors", "sectors", "inst", "inst", "inst", "inst")


def table(*rows: tuple[str, ...]) -> str:
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


RAW = "==PROF== Connected\n" + table(
    NAMES, UNITS, ("0", "rows", "0.5", "4,096", "128", "58", "72.5", "8000", "2000", "6", "1", "2", "no data")
)
SOURCE = table(("Kernel Name", "rows")).replace("\n", ",\n") + table(
    ("Address", "Source", "# Samples", "stall_barrier", "stall_long_sb", "stall_long_sb (Not Issued)"),
    ("0x1", "  LDC R1, c[0x0][0x28]", "10", "9", "1", "400"),
    ("0x2", "  FMNMX R37,  R4", "80", "0", "80", "0"),
    ("0x3", "  EXIT", "0", "0", "0", "0"),
    ("0x4", "  LDS R40", "10", "0", "0", "0"),
)
LINES = "==PROF== talk\n" + table(
    ("File Path", "/scratch/candidate/candidate.py"), ("Function Name", "rows"),
    ("Line No", "Source", "Address", "Source", "# Samples", "stall_barrier", "stall_long_sb"),
    ("16", "    x = tl.load(x_ptr + at)", "-", "-", "1,060", "60", "1,000"),
    ("", "", "0x1", "LDG.E.128 R4, [R2.64]", "1,000", "0", "1,000"),
    ("", "", "...", "...", "-", "-", "-"),
    ("17", "    p = tl.exp(x - tl.max(x, axis=0))", "-", "-", "60", "40", "20"),
    ("", "", "0x2", "FMNMX R37,  R4", "60", "40", "20"),
    ("File Path", "/python/triton/language/standard.py"), ("Function Name", "rows"),
    ("Line No", "Source", "Address", "Source", "# Samples", "stall_barrier", "stall_long_sb"),
    ("8", "return core.reduce(input, axis)", "-", "-", "80", "80", "0"),
)  # fmt: skip


@pytest.fixture
def inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], protocol.InspectedCall]:
    """What comes of a program `ncu` with this body."""

    def run(body: str) -> protocol.InspectedCall:
        program = tmp_path / "bin" / "ncu"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nimport sys, time, pathlib\nargs = sys.argv[1:]\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(program.parent))
        model = torch.nn.Linear(2, 2)
        kept = kept_for(model, ((2, 2), {}), ((torch.ones(2),), {}), QUESTION, "m")
        return Nsight(tmp_path).inspect(QUESTION, kept)

    return run


def writes(raw: str = RAW, source: str = SOURCE, size: int = 8, lines: str = "") -> str:
    return (
        "if '-o' in args:\n"
        f"    pathlib.Path(args[args.index('-o') + 1]).write_bytes(b'r' * {size})\n"
        f"else:\n    source = {lines!r} if 'cuda,sass' in args else {source!r}\n"
        f"    print(source if 'source' in args else {raw!r})\n"
    )


def test_a_launch_is_read_with_its_numbers_its_stalls_and_where_its_warps_wait(inspected: Any) -> None:
    answer = inspected(writes())
    assert (answer.launches, answer.report_bytes, answer.note) == (1, 8, "")
    (kernel,) = answer.kernels
    assert (kernel.name, kernel.us, kernel.blocks, kernel.threads, kernel.registers) == ("rows", 500.0, 4096, 128, 58)
    assert kernel.values == {"dram": 0.725, "sectors": 8000.0, "sectors_ideal": 2000.0}
    assert [(stall.reason, round(stall.share, 3)) for stall in kernel.stalls] == [
        ("long_scoreboard", 0.667), ("barrier", 0.222),
    ]  # fmt: skip
    assert [(line.place, line.share, line.reason) for line in kernel.hot] == [
        ("FMNMX R37, R4", 0.8, "long_sb"), ("LDC R1, c[0x0][0x28]", 0.1, "barrier"), ("LDS R40", 0.1, ""),
    ]  # fmt: skip


def test_where_the_binary_has_line_numbers_the_hottest_lines_of_the_source_are_told(inspected: Any) -> None:
    (kernel,) = inspected(writes(lines=LINES)).kernels
    assert [(line.place, round(line.share, 3), line.reason) for line in kernel.hot] == [
        ("candidate.py:16 x = tl.load(x_ptr + at)", 0.883, "long_sb"),
        ("standard.py:8 return core.reduce(input, axis)", 0.067, "barrier"),
        ("candidate.py:17 p = tl.exp(x - tl.max(x, axis=0))", 0.05, "barrier"),
    ]


def test_of_several_launches_the_longest_has_its_lines_and_the_others_their_instructions(inspected: Any) -> None:
    shorter = table(("1", "rows", "0.1", "4,096", "128", "58", "72.5", "8000", "2000", "6", "1", "2", "no data"))
    longest, other = inspected(writes(raw=RAW + shorter, lines=LINES)).kernels
    assert (longest.hot[0].place[:15], other.hot[0].place) == ("candidate.py:16", "FMNMX R37, R4")


def test_a_line_that_is_told_in_two_places_counts_once_with_the_sum() -> None:
    again = LINES + table(*csv.reader(LINES.splitlines()[1:5]))
    assert [round(line.share, 3) for line in lines_of(again, "rows")] == [0.938, 0.035, 0.027]


def test_a_line_of_a_file_that_ncu_does_not_find_any_more_has_the_candidates_own_text() -> None:
    text = "x = tl.load(x_ptr + at)"
    unread = LINES.replace(f"    {text}", "<Unable to open source file>")
    assert lines_of(unread, "rows")[0].place == "candidate.py:16 <Unable to open source file>"
    assert lines_of(unread, "rows", {"candidate.py": ["#"] * 15 + [text]}) == lines_of(LINES, "rows")
    assert lines_of(unread, "rows", {"candidate.py": ["#"]}) == lines_of(unread, "rows"), "of another version of it"


def test_lines_of_another_kernel_are_left_out_where_this_one_has_some() -> None:
    other = LINES.replace('"rows"', '"other"').replace("candidate.py", "other.py")
    assert lines_of(other + LINES, "rows") == lines_of(LINES, "rows")
    assert lines_of(LINES, "void rows(float*)") == lines_of(LINES, "rows"), "names may be worded in two ways"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print('==ERROR== ERR_NVGPUCTRPERM - no permission')", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("print('==ERROR== Another profiler is already attached'); sys.exit(1)", "stop it and ask again"),
        ("print('==WARNING== No kernels were profiled.')", "saw no kernel"),
        ("print('something'); print('==ERROR== it broke'); sys.exit(9)", "status 9"),
        (writes(raw=""), "left no report"),
        (writes(raw="nonsense"), "left no report"),
    ],
)
def test_a_run_without_kernels_says_why_in_one_sentence(inspected: Any, body: str, said: str) -> None:
    answer = inspected(body)
    assert answer.kernels == ()
    assert said in answer.note


def test_a_large_report_is_read_but_not_kept_and_a_huge_one_is_not_read(
    inspected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "REPORT_BYTES", 4)
    answer = inspected(writes())
    assert (len(answer.kernels), answer.report_bytes) == (1, 0)


def test_a_huge_report_is_not_read(inspected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsight, "READ_BYTES", 1 << 16)
    answer = inspected(writes(size=1 << 21))
    assert (answer.kernels, answer.note) == ((), "ncu's report of 2 MiB is too large to be read")


def test_inputs_that_are_too_large_for_a_second_process_are_refused_before_ncu_starts(
    inspected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsight, "SAVED_BYTES", 4)
    assert "too large for ncu" in inspected("raise SystemExit(5)").note


def test_without_ncu_the_answer_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nsight, "HOMES", ())
    answer = Nsight(tmp_path).inspect(QUESTION, {"inputs": (), "state": {}})
    assert "install NVIDIA Nsight Compute" in answer.note


def test_a_program_that_hangs_ends_with_all_that_it_started(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    child = f"import time, pathlib; time.sleep(1.5); pathlib.Path({str(marker)!r}).touch()"
    body = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    status, _ = ended([sys.executable, "-c", body], time.monotonic() + 0.5)
    assert status is None
    assert "took too long" in why_not(status, "")
    time.sleep(1.6)
    assert not marker.exists()


def test_a_program_that_says_too_much_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsight, "READ_BYTES", 1 << 16)
    status, said = ended([sys.executable, "-c", "while True: print('x' * 1000)"], time.monotonic() + 20)
    assert status is None
    assert len(said) <= (1 << 16) + (1 << 16)


def test_a_report_is_handed_over_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REPORT_PART_BYTES", 3)
    (tmp_path / "kernelgate.ncu-rep").write_bytes(b"abcdefg")
    one = Nsight(tmp_path)
    assert [one.part(start).data for start in (0, 3, 6, 9)] == ["YWJj", "ZGVm", "Zw==", ""]


@given(st.text(max_size=400), st.text(max_size=400))
def test_whatever_is_printed_is_read_without_an_exception(raw: str, source: str) -> None:
    kernels = kernels_of(RAW + raw)
    assert (kernels[0].name, hot_of(SOURCE + source)["rows"] != ()) == ("rows", True)
    assert len(lines_of(LINES + source, "rows")) == 3
    assert math.isfinite(number_of(raw))

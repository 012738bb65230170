"""The one program that runs all of the GPU side, tried without a GPU."""

import json
import subprocess
import sys
from pathlib import Path

from whole_host import HERE, Part, parts, run

CALLED_BY_OTHERS = {"gpu_parts", "timing_methods", "interpreted_faults", "do_bench_once"}


def test_each_program_of_the_folder_is_a_part(tmp_path: Path) -> None:
    programs = {path.stem for path in HERE.glob("*.py") if '\nif __name__ == "__main__"' in path.read_text("utf-8")}
    named = {Path(part.words[0]).stem for part in parts(tmp_path, "checkout") if part.words[0].endswith(".py")}
    assert programs - CALLED_BY_OTHERS - {"whole_host"} == named


def test_a_part_that_fails_or_hangs_is_written_down_and_the_next_goes_on(tmp_path: Path) -> None:
    chosen = [
        Part("fails", 60, ("-c", "raise SystemExit('no card')"), "fails.txt"),
        Part("hangs", 1, ("-c", "import time; time.sleep(20)"), "hangs.txt"),
        Part("works", 60, ("-c", "print('well')"), "works.txt"),
    ]
    assert not run(chosen, tmp_path)
    found = json.loads((tmp_path / "whole_host.json").read_text("utf-8"))
    assert [each["ended"] for each in found.values()] == ["exit 1", "longer than 1 s", "exit 0"]
    assert (tmp_path / "fails.txt").read_text("utf-8") == "no card\n"
    assert (tmp_path / "works.txt").read_text("utf-8") == "well\n"


def test_a_part_that_there_is_not_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "whole_host.py"), str(tmp_path), "--only", "nothing"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no such part: nothing; there are tests, gpu_host, server_run" in done.stderr

"""`kernelgate export` and `kernelgate datasette` at the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.migrations import SCHEMA_VERSION
from kernelgate.server.cli import main


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    Ledger.open(tmp_path / "ledger.db").close()
    return tmp_path / "ledger.db"


def test_export_prints_lines_of_json_or_writes_them_whole(ledger: Path, tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["export", str(ledger)])
    assert printed.exit_code == 0
    rows = [json.loads(line)["table"] for line in printed.stdout.splitlines()]
    assert rows == ["schema_version"] * SCHEMA_VERSION + ["accounts"]
    written = CliRunner().invoke(main, ["export", "--data", str(tmp_path), "-o", str(tmp_path / "book.jsonl")])
    assert (written.exit_code, written.stdout) == (0, "")
    assert f"{len(rows)} rows of" in written.stderr
    assert (tmp_path / "book.jsonl").read_text() == printed.stdout


def test_an_export_that_fails_on_its_way_leaves_the_old_file_alone(ledger: Path, tmp_path: Path) -> None:
    output = tmp_path / "book.jsonl"
    output.write_text("the export of yesterday")
    failed = CliRunner().invoke(main, ["export", str(ledger), "--table", "nothing", "-o", str(output)])
    assert failed.exit_code == 2
    assert "no table or view 'nothing'" in failed.stderr
    assert output.read_text() == "the export of yesterday"
    assert [file.name for file in tmp_path.iterdir() if not file.name.startswith("ledger.db")] == ["book.jsonl"]


def test_a_place_that_cannot_be_written_is_said(ledger: Path, tmp_path: Path) -> None:
    failed = CliRunner().invoke(main, ["export", str(ledger), "-o", str(tmp_path / "no" / "book.jsonl")])
    assert failed.exit_code == 2
    assert "cannot be written (No such file or directory): name a file" in failed.stderr


@pytest.mark.parametrize(("sink", "status", "said"), [("pipe", 0, ""), ("/dev/full", 2, "No space left on device")])
def test_a_reader_that_has_enough_and_a_full_disk_end_without_a_traceback(
    ledger: Path, sink: str, status: int, said: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    descriptor = writing if sink == "pipe" else os.open(sink, os.O_WRONLY)
    done = subprocess.run(
        [sys.executable, "-m", "kernelgate.server", "export", str(ledger)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=descriptor, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert said in done.stderr


def test_datasette_metadata_names_the_database_after_the_file_and_says_how_to_start(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "july.db").close()
    done = CliRunner().invoke(main, ["datasette", str(tmp_path / "july.db"), "-o", str(tmp_path / "meta.json")])
    assert done.exit_code == 0
    assert f"datasette -i {tmp_path / 'july.db'} -m {tmp_path / 'meta.json'}" in done.stderr
    assert list(json.loads((tmp_path / "meta.json").read_text())["databases"]) == ["july"]


def test_a_ledger_in_use_is_shown_without_the_promise_that_nobody_writes(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db"):
        done = CliRunner().invoke(main, ["datasette", str(tmp_path / "ledger.db"), "-o", str(tmp_path / "meta.json")])
    assert "datasette -i" not in done.stderr
    assert "without -i" in done.stderr


def test_metadata_for_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["datasette", str(tmp_path / "nothing.db")])
    assert done.exit_code == 2
    assert "no book at" in done.stderr

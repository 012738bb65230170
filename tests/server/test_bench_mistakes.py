"""What cannot begin ends in one sentence with exit status 2, before a server is started."""

import json
from pathlib import Path

import pytest
from bench_streams import stream, tasks
from click.testing import CliRunner

from kernelgate.server.bench import ladder_command
from kernelgate.server.cli import main


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def started(*_: object) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr(ladder_command, "server_on", started)
    monkeypatch.setenv("KERNELGATE_HOME", str(tmp_path / "home"))


def said(*words: str | Path) -> str:
    """What a command that cannot begin says."""
    result = CliRunner().invoke(main, ["bench", *map(str, words)])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output


def test_a_task_that_is_not_found_is_told_with_where_to_look(tmp_path: Path) -> None:
    path = stream(tmp_path, "softmx")
    output = said("ladder", path, "--device", "cpu")
    assert "there is no task 'softmx'; did you mean softmax?" in output
    assert "no task 'another'" in said("ladder", path, "--device", "cpu", "--task", "another")


def test_a_line_that_is_broken_is_told_with_its_number(tmp_path: Path) -> None:
    path = stream(tmp_path, "softmax")
    path.write_text(path.read_text() + "{not JSON\n")
    assert "softmax.jsonl, line 6: not JSON" in said("ladder", path, "--device", "cpu")
    path.write_text("")
    assert "softmax.jsonl is empty" in said("ladder", path, "--device", "cpu")
    assert "No such file" in said("ladder", tmp_path / "none.jsonl", "--device", "cpu")


def test_a_device_that_is_not_here_is_told(tmp_path: Path) -> None:
    assert "cuda:99" in said("ladder", stream(tmp_path, "softmax"), "--device", "cuda:99")


def test_a_rule_that_there_is_not_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    path = stream(tmp_path, "softmax")
    for option in ("--rules", "--live"):
        output = said("ladder", path, "--device", "cpu", option, "halving,quartering")
        assert "there is no rule 'quartering'; the rules are: flat, halving, threshold" in output


def test_two_streams_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    output = said("ladder", stream(tmp_path, "softmax"), stream(tmp_path / "other", "softmax"), "--device", "cpu")
    assert "two streams are named softmax" in output


def test_a_folder_with_a_ledger_is_refused_because_its_book_would_answer(tmp_path: Path) -> None:
    (tmp_path / "kept" / "softmax").mkdir(parents=True)
    (tmp_path / "kept" / "softmax" / "ledger.db").touch()
    output = said("ladder", stream(tmp_path, "softmax"), "--device", "cpu", "--data", tmp_path / "kept")
    assert "has a ledger already" in output


def test_a_place_that_cannot_be_written_is_told_before_anything_is_spent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = stream(tmp_path, "softmax")
    for option in ("--plots", "--data"):
        assert "cannot be made" in said("ladder", path, "--device", "cpu", option, tmp_path / "file" / "below")
    assert "cannot be made" in said("ladder", path, "--device", "cpu", "-o", tmp_path / "file" / "report.json")


def test_a_report_that_cannot_be_written_is_told_before_anything_is_spent(tmp_path: Path) -> None:
    assert "cannot be written (Is a directory)" in said(
        "ladder", stream(tmp_path, "softmax"), "--device", "cpu", "-o", tmp_path
    )


def test_a_file_in_the_place_of_a_streams_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "softmax").touch()
    output = said("ladder", stream(tmp_path, "softmax"), "--device", "cpu", "--data", tmp_path / "kept")
    assert "kept/softmax cannot be made: File exists" in output


def test_ctrl_c_before_anything_is_played_has_its_own_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ladder_command, "require", interrupted)
    words = ["bench", "ladder", str(stream(tmp_path, "softmax")), "--device", "cpu"]
    assert CliRunner().invoke(main, words).exit_code == 130


@pytest.mark.parametrize("budget", ["nan", "inf", "1e8"])
def test_a_budget_that_is_no_number_of_seconds_is_told(tmp_path: Path, budget: str) -> None:
    output = said("ladder", stream(tmp_path, "softmax"), "--device", "cpu", "--budget-device-s", budget)
    assert "--budget-device-s is above 0 and up to 1e+07, got" in output


def test_a_task_of_ones_own_needs_its_folder(tmp_path: Path) -> None:
    path = stream(tmp_path)
    assert "sums" in said("ladder", path, "--device", "cpu")
    (tmp_path / "tasks").mkdir()
    tasks(tmp_path / "tasks" / "mine")
    assert "there is no task folder" in said("ladder", path, "--device", "cpu", "--tasks", tmp_path / "nowhere")


def test_what_is_no_report_is_not_drawn(tmp_path: Path) -> None:
    assert "cannot be read" in said("plot", tmp_path / "none.json", "-o", tmp_path)
    (tmp_path / "other.json").write_text(json.dumps({"streams": []}))
    assert "is no report of this" in said("plot", tmp_path / "other.json", "-o", tmp_path)

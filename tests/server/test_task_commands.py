"""What the commands around a user's own tasks tell them."""

from pathlib import Path
from typing import Any

import pytest

from kernelgate.server import task_commands
from kernelgate.server.settings import Settings
from kernelgate.tasks.qualify import TaskFitness

REFERENCE = "size = 4\nclass Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def test_the_user_is_told_that_the_file_was_copied_and_what_it_still_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "softmax.py"
    mine.write_text("import no_such_module_here\n" + REFERENCE)
    settings = Settings(data_dir=tmp_path / "data")
    assert task_commands.add(settings, mine, None, replace=False) == 0
    said = capsys.readouterr().out
    assert f"a copy: later edits of {mine} change nothing" in said
    assert "cannot be run yet: it needs no_such_module_here" in said
    assert "tasks check tasks/softmax" in said, "the bundled one has the plain name"
    assert task_commands.remove(settings, "tasks/softmax") == 0
    assert "tasks/softmax is removed" in capsys.readouterr().out
    assert task_commands.add(settings, tmp_path / "nothing.py", None, replace=False) == 2


def test_what_stands_in_brackets_is_printed_and_not_taken_for_a_style(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refusing(*_: Any) -> TaskFitness:
        return TaskFitness(fit=False, problems=("tighten [tolerance] in its task.toml",))

    monkeypatch.setattr(task_commands, "qualify", refusing)
    assert task_commands.check_tasks(Settings(data_dir=tmp_path / "data", device="cpu"), ("softmax",)) == 1
    assert "tighten [tolerance] in" in " ".join(capsys.readouterr().out.split())

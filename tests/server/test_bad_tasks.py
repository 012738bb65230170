"""What `kernelgate tasks check` says of tasks that are none, through a real server, supervisor and referee."""

from pathlib import Path

import pytest
from live_server import forward

from kernelgate.server import measure, task_commands
from kernelgate.server.settings import Settings

REFERENCE = """
import os
import time
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
{more}
"""
TASK = 'distributions = ["normal"]\n{tolerance}\n[[workload]]\nname = "only"\n'
LOOSE = "[tolerance.float32]\nrtol = 1e-2\natol = 1e-2"


def write_task(
    folder: Path, name: str, forward: str, inputs: str = "torch.rand(8, 32)", more: str = "", tolerance: str = ""
) -> None:
    place = folder / name
    place.mkdir(parents=True)
    lines = forward.replace("\n", "\n        ")
    source = REFERENCE.format(forward=lines, inputs=inputs, more=more)
    (place / "reference.py").write_text(source, encoding="utf-8")
    (place / "task.toml").write_text(TASK.format(tolerance=tolerance), encoding="utf-8")


GRADIENTS = "y = torch.exp(x.requires_grad_())\nreturn torch.autograd.grad(y.sum(), x)[0]"
SOFTMAX = "return torch.softmax(x, -1)"
HUGE = "torch.rand(1 << 18, 1 << 18)"
BAD = {
    "random": (("return x + torch.tensor(list(os.urandom(1)))",), "gives another answer the second time"),
    "in_place": (("return x.mul_(2)",), "writes into its inputs"),
    "gradients": ((GRADIENTS,), "raised RuntimeError"),
    "nothing": (("return None",), "returns neither a tensor nor a number"),
    "huge": ((SOFTMAX, HUGE), "give it smaller workloads in a task.toml, or a larger device"),
    "huge_inside": (("return x.repeat(1 << 15, 1 << 13)[:1]",), "allocat"),
    "check_raises": ((SOFTMAX, "torch.rand(8, 32)", "def check(inputs, output):\n    raise KeyError('rows')"),
                     "check() raised KeyError: 'rows'"),
    "loose": (("return torch.softmax(x, -1) * 1e-4", "torch.rand(8, 32)", "", LOOSE), "mutant zeros"),
}  # fmt: skip


def test_a_kernel_that_a_run_would_call_forbidden_is_called_that_and_not_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_task(tmp_path / "mine", "strict", SOFTMAX)
    place = tmp_path / "mine" / "strict"
    settings_of_it = (place / "task.toml").read_text()
    (place / "task.toml").write_text(f'allow_library_calls = false\nbaseline = "kernel.py"\n{settings_of_it}')
    (place / "kernel.py").write_text(forward("return torch.softmax(x, -1)"))
    settings = Settings(data_dir=tmp_path / "data", device="cpu", task_dirs=(tmp_path / "mine",))
    assert task_commands.check_tasks(settings, ("strict",)) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("forbidden its own kernel: forward computes with torch's"), last


OWN_KERNELS = {
    "good": ("return torch.softmax(x, -1)", "right    its own kernel: ", "answers were right on all public workloads"),
    "tail": (
        "y = torch.softmax(x, -1)\ny[-1] = 0\nreturn y",
        "wrong    its own kernel: ",
        "only in the last 1 of 8 rows",
    ),
    "broken": ("return torch.softmaxx(x, -1)", "wrong    its own kernel: ", "AttributeError"),
}


def test_what_an_own_kernel_does_wrong_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, (body, _, _) in OWN_KERNELS.items():
        write_task(tmp_path / "mine", name, SOFTMAX)
        place = tmp_path / "mine" / name
        (place / "task.toml").write_text('baseline = "kernel.py"\n' + (place / "task.toml").read_text())
        (place / "kernel.py").write_text(forward(body))
    settings = Settings(data_dir=tmp_path / "data", device="cpu", task_dirs=(tmp_path / "mine",))
    assert task_commands.check_tasks(settings, tuple(OWN_KERNELS)) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if "own kernel" in line]
    for line, (_, start, end) in zip(told, OWN_KERNELS.values(), strict=True):
        assert line.startswith(start), line
        assert end in line, line


@pytest.mark.long
def test_each_bad_task_is_refused_in_a_line_and_a_sound_one_beside_them_is_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, (parts, _) in BAD.items():
        write_task(tmp_path / "mine", name, *parts)
    write_task(tmp_path / "mine", "sound", SOFTMAX)
    settings = Settings(data_dir=tmp_path / "data", device="cpu", task_dirs=(tmp_path / "mine",))
    assert task_commands.check_tasks(settings, (*BAD, "sound")) == 1
    said = capsys.readouterr().out.splitlines()
    lines = {name: [line for line in said if f" {name}: " in line] for name in BAD}
    for name, (_, words) in BAD.items():
        (line,) = lines[name]
        assert line.startswith("refused"), line
        assert words in line
    assert any(line.startswith("fit      sound on cpu") for line in said), said
    assert task_commands.check_tasks(settings, ("sound",)) == 0, "it is in the book"


@pytest.mark.long
def test_a_reference_that_takes_longer_than_all_of_its_trial_may_is_stopped_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "QUALIFY_LIMIT_S", 1.0)
    slow = "end = time.monotonic() + 3\nwhile time.monotonic() < end:\n    x.exp()\nreturn x.exp()"
    write_task(tmp_path / "mine", "slow", slow)
    settings = Settings(data_dir=tmp_path / "data", device="cpu", task_dirs=(tmp_path / "mine",))
    assert task_commands.check_tasks(settings, ("slow",)) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " slow: " in line]
    assert "give it smaller workloads in a task.toml, or a faster device" in line

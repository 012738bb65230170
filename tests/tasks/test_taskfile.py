"""A wrong `task.toml` is answered with the key, what is wrong with it, and what is allowed."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tasks.taskfile import TaskError, TaskFile, kernel_of, parse_task_file, task_of_folder, title_of

REFERENCE = "size = 4\nclass Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"

WRONG = {
    "titel = 'x'": "task.toml: unknown key titel; allowed are title, description, precision, weight_seed, "
    "distributions, domains, languages, allow_library_calls, baselines, baseline, tolerance, workload",
    "precision = 'fp8'": "task.toml: precision: Input should be 'ieee' or 'tf32', got 'fp8'",
    "weight_seed = '7'": "task.toml: weight_seed: Input should be a valid integer, got '7'",
    "distributions = []": "task.toml: distributions: Tuple should have at least 1 item",
    "domains = ['index']": "task.toml: domains.0: String should match pattern",
    "baseline = '../kernel.py'": "task.toml: baseline: String should match pattern",
    "tolerance.float32.rtol = 1e-3": "task.toml: tolerance.float32.atol is missing",
    "tolerance.float32 = {rtol = 0, atol = 0, tol = 1}": "unknown key tolerance.float32.tol; allowed are rtol, atol",
    "tolerance.fp32 = {rtol = 0, atol = 0}": "task.toml: tolerance.fp32: Input should be 'float64', 'float32'",
    "tolerance.float32 = {rtol = nan, atol = 0}": "task.toml: tolerance.float32.rtol: ",
    "tolerance.float32 = {rtol = 2, atol = 0}": "less than or equal to 0.5, got 2",
    "[[workload]]\nnmae = 'a'": "task.toml: workload.0.name is missing (1 more like it)",
    "[[workload]]\nname = 'a'\nhidden = true": "key workload.0.hidden; allowed are name, held_out, devices, set",
    "[[workload]]\nname = 'A b'": "task.toml: workload.0.name: String should match pattern",
    "[[workload]]\nname = 'a'\ndevices = ['gpu']": "workload.0.devices.0: Input should be 'cpu' or 'cuda', got 'gpu'",
    "[[workload]]\nname = 'a'\n[workload.set]\nsize = 1979-05-27": "workload.0.set.size: a constant is a finite number",
    "[[workload]]\nname = 'a'\n[workload.set]\nsize = inf": "workload.0.set.size: a constant is a finite number",
    "title = ": "task.toml is not TOML: Invalid value (at",
    "a = " + "[" * 10_000: "task.toml is not TOML: ",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_answered_with_one_sentence(text: str):
    with pytest.raises(TaskError) as raised:
        parse_task_file(text)
    assert WRONG[text] in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.text())
def test_any_text_is_a_task_file_or_a_task_error(text: str):
    with contextlib.suppress(TaskError):
        assert isinstance(parse_task_file(text), TaskFile)


def folder_with(tmp_path: Path, toml: str) -> Path:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "task.toml").write_text(toml)
    return tmp_path


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[[workload]]\nname='a'\nset={sise=8}", "workload a: no constant 'sise' .* there are: size"),
        ("[[workload]]\nname='a'\nheld_out=true", "each workload is held_out; at least one must be public"),
        ("[[workload]]\nname='a'\n[[workload]]\nname='a'", "workload names must be unique"),
        ("baseline = 'kernel.py'", "there is no kernel.py"),
        ("baseline = 'reference.py'", "reference.py defines no class ModelNew"),
    ],
)
def test_a_file_that_does_not_fit_its_reference_says_so(tmp_path: Path, toml: str, message: str):
    with pytest.raises(TaskError, match=message):
        task_of_folder(folder_with(tmp_path, toml), name="t", group="g")


def test_a_kernel_with_a_syntax_error_says_where(tmp_path: Path):
    path = tmp_path / "kernel.py"
    path.write_text("class ModelNew:\n")
    with pytest.raises(TaskError, match=r"kernel\.py: syntax error at line 1: expected an indented block"):
        kernel_of(path)


def test_a_title_is_made_of_a_file_name():
    assert [title_of(stem) for stem in ("19_ReLU", "my_kernel", "19", "7_")] == ["ReLU", "my kernel", "19", "7 "]

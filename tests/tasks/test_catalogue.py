"""The catalogue finds tasks in three kinds of places, runs none of them, and hides none behind another."""

import os
from pathlib import Path
from typing import IO, Any

import pytest

from kernelgate.tasks.catalogue import Catalogue, TaskEntry
from kernelgate.tasks.model import DEFAULT_TOLERANCES, Tolerance
from kernelgate.tasks.taskfile import MAX_FILE_BYTES, TaskError

GOOD = """\
import torch
from torch import nn

size = 64


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(size, size)]


def get_init_inputs():
    return []
"""
BUNDLED = ("cross_entropy", "layernorm_residual", "linear_gelu", "matmul", "rmsnorm", "softmax")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def by_name(catalogue: Catalogue) -> dict[str, TaskEntry]:
    entries = catalogue.entries()
    assert all((entry.task is None) != (entry.unavailable is None) for entry in entries)
    names = {entry.name: entry for entry in entries}
    assert len(names) == len(entries)
    return names


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small tree in the shape of a KernelBench checkout."""
    root = tmp_path / "bench"
    write(root / "KernelBench" / "level1" / "2_Add_one.py", GOOD)
    write(root / "KernelBench" / "level1" / "10_Broken.py", GOOD + "def (:\n")
    write(root / "KernelBench" / "level2" / "1_Needs.py", GOOD + "import surely_not_installed.part\n")
    write(root / "KernelBench" / "level2" / "2_NoInputs.py", GOOD.replace("get_inputs", "inputs"))
    write(root / "KernelBench" / "README.md", "not a task")
    return root


def test_the_bundled_tasks_are_listed_and_usable():
    names = by_name(Catalogue())
    assert tuple(names) == BUNDLED
    assert [entry.unavailable for entry in names.values()] == [None] * 6
    assert {entry.group for entry in names.values()} == {"bundled"}


def test_a_checkout_is_listed_by_level_in_the_order_of_its_numbers(checkout: Path):
    for path in (checkout, checkout / "KernelBench"):
        names = by_name(Catalogue(kernelbench=path))
        assert list(names)[6:] == [
            "kernelbench/level1/2_Add_one",
            "kernelbench/level1/10_Broken",
            "kernelbench/level2/1_Needs",
            "kernelbench/level2/2_NoInputs",
        ]
    assert names["kernelbench/level2/1_Needs"].group == "kernelbench/level2"
    assert names["kernelbench/level1/2_Add_one"].title == "Add one"


def test_a_file_that_cannot_be_used_says_why_and_hides_no_other(checkout: Path):
    names = by_name(Catalogue(folders=[checkout]))
    assert names["kernelbench/level1/2_Add_one"].unavailable is None
    assert names["kernelbench/level2/1_Needs"].unavailable == "needs surely_not_installed"
    assert names["kernelbench/level1/10_Broken"].unavailable == "10_Broken.py: syntax error at line 18: invalid syntax"
    assert names["kernelbench/level2/2_NoInputs"].unavailable == (
        "2_NoInputs.py: the reference defines no function get_inputs()"
    )


def test_a_task_without_task_toml_is_original_on_a_gpu_and_small_on_a_cpu(checkout: Path):
    task = Catalogue(kernelbench=checkout).task("kernelbench/level1/2_Add_one")
    assert [(w.name, w.shrink_to_bytes) for w in task.workloads_on("cuda", held_out=True)] == [("original", 0)]
    assert [(w.name, w.shrink_to_bytes) for w in task.workloads_on("cpu", held_out=True)] == [
        ("tiny", 256 << 10),
        ("small", 64 << 20),
    ]
    assert task.tolerance("float32") == DEFAULT_TOLERANCES["float32"]


def test_nothing_is_executed_not_even_a_module_that_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    marker = tmp_path / "ran"
    trap = f"open({str(marker)!r}, 'w')\n"
    write(tmp_path / "path" / "trapped_module" / "__init__.py", trap)
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    write(tmp_path / "mine" / "plain.py", trap + GOOD + "import trapped_module.inner\n")
    write(tmp_path / "mine" / "folder" / "reference.py", trap + GOOD)
    write(tmp_path / "mine" / "folder" / "kernel.py", trap + "class ModelNew: ...\n")
    write(tmp_path / "mine" / "folder" / "task.toml", 'baseline = "kernel.py"')
    names = by_name(Catalogue(folders=[tmp_path / "mine"]))
    assert names["plain"].task is not None
    assert names["folder"].task is not None
    assert not marker.exists()


def test_a_folder_of_tasks_may_mix_files_and_folders_and_skips_what_is_neither(tmp_path: Path):
    mine = tmp_path / "mine"
    write(mine / "one.py", GOOD)
    write(mine / "two" / "reference.py", GOOD)
    write(mine / "only_toml" / "task.toml", "")
    write(mine / "notes" / "readme.txt", "")
    write(mine / "_helper.py", "")
    write(mine / ".hidden.py", "")
    names = by_name(Catalogue(folders=[mine]))
    assert list(names)[6:] == ["one", "only_toml", "two"]
    assert {names[name].group for name in ("one", "two")} == {"mine"}
    assert names["only_toml"].unavailable == "there is no reference.py"


def test_a_single_task_may_be_named_directly(tmp_path: Path):
    file = write(tmp_path / "mine" / "one.py", GOOD)
    folder = write(tmp_path / "mine" / "two" / "reference.py", GOOD).parent
    assert list(by_name(Catalogue(folders=[file, folder])))[6:] == ["one", "two"]


def test_a_taken_name_is_told_apart_by_its_group(tmp_path: Path):
    for folder in ("a/mine", "b/mine"):
        write(tmp_path / folder / "softmax.py", GOOD)
    names = by_name(Catalogue(folders=[tmp_path / "a" / "mine", tmp_path / "b" / "mine"]))
    assert list(names)[5:] == ["softmax", "mine/softmax", "mine/softmax-2"]
    assert names["softmax"].group == "bundled"
    assert all(entry.task is not None and entry.task.name == entry.name for entry in names.values())


def test_a_file_whose_name_is_no_task_name_is_listed_as_such(tmp_path: Path):
    write(tmp_path / "mine" / "my\nkernel!.py", GOOD)
    names = by_name(Catalogue(folders=[tmp_path / "mine"]))
    assert "is no task name: use letters, digits" in (names["my?kernel?"].unavailable or "")


def test_an_unknown_name_gets_the_similar_ones(checkout: Path):
    catalogue = Catalogue(kernelbench=checkout)
    with pytest.raises(TaskError, match=r"there is no task 'sofmax'; did you mean softmax"):
        catalogue.task("sofmax")
    with pytest.raises(TaskError, match=r"there is no task '\.\./\.\./secret'; list_tasks shows"):
        catalogue.task("../../secret")
    with pytest.raises(TaskError, match="task kernelbench/level2/1_Needs is unavailable: needs surely_not_installed"):
        catalogue.task("kernelbench/level2/1_Needs")


def test_a_place_that_does_not_exist_is_an_error_at_once(tmp_path: Path):
    with pytest.raises(TaskError, match="there is no task folder"):
        Catalogue(folders=[tmp_path / "nowhere"])
    with pytest.raises(TaskError, match="no KernelBench checkout"):
        Catalogue(kernelbench=tmp_path)


def test_a_folder_that_vanishes_leaves_the_others(tmp_path: Path):
    mine = tmp_path / "mine"
    write(mine / "one.py", GOOD)
    catalogue = Catalogue(folders=[mine])
    (mine / "one.py").unlink()
    mine.rmdir()
    names = by_name(catalogue)
    assert list(names)[:6] == list(BUNDLED)
    assert names["mine"].unavailable == "the folder cannot be read: No such file or directory"


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path):
    path = write(tmp_path / "mine" / "one.py", GOOD)
    catalogue = Catalogue(folders=[tmp_path / "mine"])
    before = catalogue.entry("one")
    assert catalogue.entry("one") is before
    path.write_text(GOOD.replace("size = 64", "size = 1288"))
    assert catalogue.entry("one").task is not None
    assert catalogue.task("one").digest != (before.task.digest if before.task else "")


def test_what_is_no_text_of_bounded_size_is_refused(tmp_path: Path):
    mine = tmp_path / "mine"
    write(mine / "huge.py", GOOD + "#" * MAX_FILE_BYTES)
    (mine / "latin.py").write_bytes(b"x = '\xe9'")
    os.mkfifo(mine / "pipe.py")
    names = by_name(Catalogue(folders=[mine]))
    assert names["huge"].unavailable == "huge.py has more than 131,072 bytes, the most that a task's file may have"
    assert names["latin"].unavailable == "latin.py is not UTF-8 text (byte 5)"
    assert names["pipe"].unavailable == "pipe.py is not a plain file"


def test_naming_250_tasks_reads_none_and_asking_for_one_reads_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(250):
        write(tmp_path / "level1" / f"{number}_Task.py", GOOD if number == 7 else "def (:")
    catalogue = Catalogue(kernelbench=tmp_path)
    opened: list[str] = []
    really_open = Path.open

    def watched(path: Path, mode: str = "r") -> IO[Any]:
        opened.append(path.name)
        return really_open(path, mode)

    monkeypatch.setattr(Path, "open", watched)
    assert len(catalogue.names()) == 256
    assert opened == []
    assert catalogue.task("kernelbench/level1/7_Task").source == GOOD
    assert opened == ["7_Task.py"]
    assert len(catalogue.entries()) == 256


def test_task_toml_reaches_the_task(tmp_path: Path):
    folder = tmp_path / "mine" / "one"
    write(folder / "reference.py", GOOD)
    write(folder / "mine.py", "class ModelNew: ...\n")
    write(
        folder / "task.toml",
        'title = "One"\nprecision = "tf32"\nweight_seed = 7\ndistributions = ["uniform"]\ndomains = ["positive"]\n'
        'languages = ["triton"]\nbaselines = ["eager", "compile"]\nbaseline = "mine.py"\ndescription = "Adds one."\n'
        "[tolerance.float32]\nrtol = 0\natol = 1e-3\n"
        '[[workload]]\nname = "a"\ndevices = ["cpu"]\n[workload.set]\nsize = 8\n'
        '[[workload]]\nname = "b"\nheld_out = true\n',
    )
    task = Catalogue(folders=[tmp_path / "mine"]).task("one")
    assert (task.title, task.precision, task.weight_seed, task.distributions) == ("One", "tf32", 7, ("uniform",))
    assert (task.domains, task.languages, task.baselines) == (("positive",), ("triton",), ("eager", "compile"))
    assert (task.description, task.baseline_kernel) == ("Adds one.", "class ModelNew: ...\n")
    assert task.tolerance("float32") == Tolerance(rtol=0, atol=1e-3)
    assert [(w.name, w.overrides, w.held_out) for w in task.workloads] == [("a", {"size": 8}, False), ("b", {}, True)]

"""A user's file becomes a task of their folder, judged before anything is kept."""

from pathlib import Path

import pytest

from kernelgate.tasks.adding import add_task, remove_task
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.taskfile import TaskError

REFERENCE = "size = 4\nclass Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
KERNEL = "class ModelNew: ...\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "my_op.py"
    path.write_text(REFERENCE)
    return path


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "fast.py"
    path.write_text(KERNEL)
    return path


def test_an_added_file_is_a_task_of_the_folder(mine: Path, tmp_path: Path):
    into = tmp_path / "deep" / "tasks"
    assert add_task(mine, into) == into / "my_op"
    task = Catalogue(folders=[into]).task("my_op")
    assert (task.source, task.group, task.baseline_kernel) == (REFERENCE, "tasks", None)


def test_a_kernel_added_with_it_is_what_is_to_be_beaten(mine: Path, kernel: Path, tmp_path: Path):
    add_task(mine, tmp_path / "tasks", kernel)
    assert Catalogue(folders=[tmp_path / "tasks"]).task("my_op").baseline_kernel == KERNEL


def test_of_a_folder_only_what_the_task_consists_of_is_copied(kernel: Path, tmp_path: Path):
    folder = tmp_path / "op"
    folder.mkdir()
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "task.toml").write_text('title = "Mine"\n[[workload]]\nname = "a"\nset = {size = 8}\n')
    (folder / "secret.txt").write_text("no")
    added = add_task(folder, tmp_path / "tasks", kernel)
    assert sorted(path.name for path in added.iterdir()) == ["kernel.py", "reference.py", "task.toml"]
    task = Catalogue(folders=[tmp_path / "tasks"]).task("op")
    assert (task.title, task.baseline_kernel, len(task.workloads)) == ("Mine", KERNEL, 1)
    again = add_task(added, tmp_path / "elsewhere")
    assert Catalogue(folders=[again]).task("op").digest == task.digest
    with pytest.raises(TaskError, match="names a baseline already"):
        add_task(added, tmp_path / "third", kernel)


def test_a_taken_name_is_refused_and_nothing_is_overwritten(mine: Path, tmp_path: Path):
    add_task(mine, tmp_path / "tasks")
    mine.write_text(REFERENCE + "size = 5\n")
    with pytest.raises(TaskError, match="has a task my_op already"):
        add_task(mine, tmp_path / "tasks")
    assert (tmp_path / "tasks" / "my_op" / "reference.py").read_text() == REFERENCE


def test_what_is_no_task_leaves_nothing_behind(mine: Path, kernel: Path, tmp_path: Path):
    into = tmp_path / "tasks"
    mine.write_text("x = 1\n")
    with pytest.raises(TaskError, match="defines no class Model"):
        add_task(mine, into)
    mine.write_text(REFERENCE)
    kernel.write_text("class Model: ...\n")
    with pytest.raises(TaskError, match=r"fast\.py defines no class ModelNew"):
        add_task(mine, into, kernel)
    with pytest.raises(TaskError, match=r"there is no nothing\.py"):
        add_task(tmp_path / "nothing.py", into)
    assert not into.exists() or list(into.iterdir()) == []


def test_a_name_that_no_task_may_have_is_refused(mine: Path, tmp_path: Path):
    with pytest.raises(TaskError, match="is no task name"):
        add_task(mine.rename(tmp_path / "my op!.py"), tmp_path / "tasks")


def test_a_place_that_cannot_be_written_is_an_error(mine: Path, tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(TaskError, match="cannot write to"):
        add_task(mine, blocked / "tasks")


def test_a_task_that_is_replaced_is_the_new_one_alone(mine: Path, kernel: Path, tmp_path: Path):
    into = tmp_path / "tasks"
    add_task(mine, into, kernel, replace=True)
    newer = REFERENCE + "size = 5\n"
    mine.write_text(newer)
    added = add_task(mine, into, replace=True)
    assert [path.name for path in added.iterdir()] == ["reference.py"]
    assert Catalogue(folders=[into]).task("my_op").source == newer
    assert list(into.iterdir()) == [added]


def test_a_plain_file_of_that_name_gives_way_too(mine: Path, tmp_path: Path):
    into = tmp_path / "tasks"
    into.mkdir()
    (into / "my_op.py").write_text(REFERENCE)
    with pytest.raises(TaskError, match="--replace"):
        add_task(mine, into)
    assert list(into.iterdir()) == [into / "my_op.py"]
    assert add_task(mine, into, replace=True) == into / "my_op"
    assert list(into.iterdir()) == [into / "my_op"]


def test_what_is_no_task_replaces_nothing(mine: Path, tmp_path: Path):
    added = add_task(mine, tmp_path / "tasks")
    mine.write_text("x = 1\n")
    with pytest.raises(TaskError):
        add_task(mine, tmp_path / "tasks", replace=True)
    assert (added / "reference.py").read_text() == REFERENCE


@pytest.mark.parametrize("name", ["my_op", "softmax"])
def test_an_added_task_is_removed_by_the_name_that_the_catalogue_gives_it(mine: Path, tmp_path: Path, name: str):
    into = tmp_path / "tasks"
    added = add_task(mine.rename(tmp_path / f"{name}.py"), into)
    catalogue = Catalogue(folders=[into])
    listed = next(entry.name for entry in catalogue.entries() if entry.path == added)
    assert remove_task(catalogue, listed, into) == added
    assert list(into.iterdir()) == []
    assert listed not in catalogue.names()


def test_a_broken_task_can_be_removed(mine: Path, tmp_path: Path):
    added = add_task(mine, tmp_path / "tasks")
    (added / "reference.py").write_text("def (")
    assert remove_task(Catalogue(folders=[tmp_path / "tasks"]), "my_op", tmp_path / "tasks") == added


def test_a_task_that_lies_elsewhere_is_never_removed(mine: Path, tmp_path: Path):
    own, other = tmp_path / "tasks", tmp_path / "other"
    add_task(mine, own)
    elsewhere = add_task(mine.rename(tmp_path / "theirs.py"), other)
    catalogue = Catalogue(folders=[other, own])
    with pytest.raises(TaskError, match=r"theirs lies in .*other and stays; only what .* can be removed: my_op$"):
        remove_task(catalogue, "theirs", own)
    with pytest.raises(TaskError, match="softmax comes with kernelgate and stays"):
        remove_task(catalogue, "softmax", own)
    with pytest.raises(TaskError, match="there is no task 'nosuch'"):
        remove_task(catalogue, "nosuch", own)
    assert elsewhere.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", r"^my_op\.py: the reference defines no class Model; .*get_init_inputs\(\)$"),
        ("def (", r"^my_op\.py: syntax error at line 1"),
        (KERNEL, r"^my_op\.py: .*; it defines ModelNew, so it is a kernel: .* with --kernel my_op\.py$"),
    ],
)
def test_a_file_that_is_no_reference_is_called_as_its_user_calls_it(mine: Path, tmp_path: Path, text: str, words: str):
    mine.write_text(text)
    with pytest.raises(TaskError, match=words):
        add_task(mine, tmp_path / "tasks")


def test_a_baseline_that_is_missing_is_said_with_the_file_that_asks_for_it(tmp_path: Path):
    folder = tmp_path / "op"
    folder.mkdir()
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "task.toml").write_text('baseline = "fast.py"\n')
    asked = r'task\.toml asks for baseline = "fast\.py", but there is no fast\.py beside it'
    with pytest.raises(TaskError, match=asked):
        add_task(folder, tmp_path / "tasks")
    with pytest.raises(TaskError, match=asked):
        Catalogue(folders=[folder]).task("op")

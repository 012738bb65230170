"""What an agent reads of a task before it starts: sizes of every public workload, and nothing of the hidden ones."""

import json
from pathlib import Path

import pytest

from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Override, Task
from kernelgate.tasks.qualify import Qualification, ReferenceFacts, Trial
from kernelgate.tools.get_task import GetTaskArgs, TaskDetails, answer

BUNDLED = [entry.task for entry in Catalogue().entries() if entry.task is not None]
PIECES = "class Model: width = WIDTH\ndef get_inputs(): return BATCH, TWICE\ndef get_init_inputs(): ...\n"
SIZES = "BATCH = 4096\nWIDTH = 8192\nTWICE = WIDTH * 2\nUNUSED = 3\n"


class Shelf:
    """A book that holds one task."""

    def __init__(self, task: Task, found: Qualification | None) -> None:
        self._task = task
        self._found = found

    async def task(self, name: str) -> Task:
        assert name == self._task.name
        return self._task

    async def qualification(self, task: Task) -> Qualification | None:
        assert task == self._task
        return self._found

    async def head(self) -> str:
        return "0:0"


async def details(task: Task, found: Qualification | None = None) -> TaskDetails:
    return await answer(Shelf(task, found), GetTaskArgs(task=task.name))


def facts(workload: str, inputs: tuple[str, ...], overrides: dict[str, Override] | None = None) -> ReferenceFacts:
    return ReferenceFacts(
        workload=workload, distribution="normal", finite=True, deterministic=True, output_std=1.0, bytes_needed=1,
        overrides=overrides or {}, inputs=inputs,
    )  # fmt: skip


def users_task(folder: Path, source: str, toml: str = "") -> Task:
    place = folder / "tasks/mine"
    place.mkdir(parents=True)
    (place / "reference.py").write_text(source, encoding="utf-8")
    if toml:
        (place / "task.toml").write_text(toml, encoding="utf-8")
    return Catalogue([folder / "tasks"]).task("mine")


@pytest.mark.anyio
@pytest.mark.parametrize("task", BUNDLED, ids=lambda task: task.name)
async def test_every_public_workload_of_a_bundled_task_says_its_sizes(task: Task) -> None:
    shown = await details(task)
    public = [workload for workload in task.workloads if not workload.held_out]
    assert [workload.name for workload in shown.workloads] == [workload.name for workload in public]
    assert all(workload.set for workload in shown.workloads)


@pytest.mark.anyio
async def test_a_users_own_file_says_the_sizes_that_it_has_and_which_are_halved_to_fit(tmp_path: Path) -> None:
    original, tiny, small = (await details(users_task(tmp_path, SIZES + PIECES))).workloads
    assert (original.name, original.set) == ("original", {"BATCH": 4096, "WIDTH": 8192})
    for workload, limit in ((tiny, "256 KiB"), (small, "64 MiB")):
        assert workload.set == {}
        assert workload.sizes.startswith("BATCH, WIDTH: halved")
        assert workload.sizes.endswith(limit)


@pytest.mark.anyio
async def test_a_file_without_constants_says_that_none_can_be_halved(tmp_path: Path) -> None:
    task = users_task(tmp_path, "class Model: ...\ndef get_inputs(): return 4096\ndef get_init_inputs(): ...\n")
    assert [workload.sizes for workload in (await details(task)).workloads[1:]] == [
        "as the file has them: no constant of it can be halved"
    ] * 2


@pytest.mark.anyio
async def test_a_workloads_own_values_stand_before_those_of_the_file_and_hidden_ones_are_never_shown(
    tmp_path: Path,
) -> None:
    toml = (
        '[[workload]]\nname = "wide"\nset = {WIDTH = 77}\n'
        '[[workload]]\nname = "secret"\nheld_out = true\nset = {WIDTH = 31337}\n'
    )
    shown = await details(users_task(tmp_path, SIZES + PIECES, toml))
    (wide,) = shown.workloads
    assert wide.set == {"BATCH": 4096, "WIDTH": 77}
    assert shown.held_out_workloads == 1
    text = json.dumps(shown.model_dump(mode="json"))
    assert "31337" not in text
    assert "secret" not in text.replace("secret inputs", "")


@pytest.mark.anyio
async def test_what_the_referee_found_stands_in_place_of_how_it_is_found(tmp_path: Path) -> None:
    task = users_task(tmp_path, SIZES + PIECES)
    found = Qualification(references=(facts("small", ("float32 [512, 2048]", "int"), {"BATCH": 512, "WIDTH": 1024}),))
    original, tiny, small = (await details(task, found)).workloads
    assert (small.set, small.sizes) == ({"BATCH": 512, "WIDTH": 1024}, "")
    assert small.inputs == ("float32 [512, 2048]", "int")
    assert (original.set, original.inputs) == ({"BATCH": 4096, "WIDTH": 8192}, ())
    assert tiny.sizes


@pytest.mark.anyio
async def test_what_was_found_of_hidden_workloads_is_not_shown(tmp_path: Path) -> None:
    toml = '[[workload]]\nname = "wide"\n[[workload]]\nname = "secret"\nheld_out = true\nset = {WIDTH = 31337}\n'
    task = users_task(tmp_path, SIZES + PIECES, toml)
    hidden = facts("secret", ("float32 [31337]",), {"WIDTH": 31337})
    shown = await details(task, Qualification(references=(facts("wide", ("float32 [7]",)), hidden)))
    assert [workload.inputs for workload in shown.workloads] == [("float32 [7]",)]
    assert "31337" not in json.dumps(shown.model_dump(mode="json", exclude={"digest"})), "a digest may have any digits"


@pytest.mark.anyio
async def test_an_input_that_no_answer_reacts_to_is_told_without_the_name_of_a_hidden_workload(tmp_path: Path) -> None:
    toml = '[[workload]]\nname = "secret"\nheld_out = true\n[[workload]]\nname = "wide"\n'
    task = users_task(tmp_path, SIZES + PIECES, toml)
    trials = [
        Trial(mutant="ignored", of="input 2", workload=name, distribution="normal", passes=True, effect=False)
        for name in ("secret", "wide")
    ]
    found = Qualification(references=(facts("wide", ()), facts("secret", ())), trials=tuple(trials))
    shown = await details(task, found)
    assert "no answer of its reference reacts to input 2" in shown.summary
    assert "secret" not in shown.summary

"""The streams without a GPU: the files are what their generator makes, and each candidate is what it is meant to be."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worker"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from compile_host import CompileHost
from live_server import Live
from make_streams import FOLDER, TASKS, Idea, ideas_of
from stream_core import SEED, Notebook, as_jsonl, maker

from kernelgate.budget.model import Budget
from kernelgate.server.app import build
from kernelgate.server.policy import Policy
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.source_scan import scan_files
from kernelgate.tools.kit.allowed import why_forbidden

PROGRAM = Path(__file__).parent / "streams_of" / "interpreted_stream.py"
MOST_BYTES = 300_000
FEWEST = 40
MIXTURE = {"unbuilt": (4, 7), "wrong": (6, 10), "slow": (3, 5), "raises": (1, 2), "near": (6, 12), "repeated": (2, 3)}
"""How many of each kind a stream has."""
LIMIT_S = 600
known = cache(ideas_of)


def sampled(task: str, *classes: str) -> set[str]:
    """The name of one candidate of each class, the same ones in each run."""
    names = {meant: [idea.name for idea in known(task) if idea.meant == meant] for meant in classes}
    return {random.Random(f"{task} {meant} {SEED}").choice(those) for meant, those in names.items()}


def some_or_all(*classes: str, long: tuple[str, ...] = ()) -> list[Any]:
    """Tasks and ideas: a few of all tasks that are tried always, and all of each task, which takes minutes."""
    few = [(task, idea) for task in TASKS for idea in known(task) if idea.name in sampled(task, *classes)]
    kinds = (*classes, *long)
    whole = {task: [(task, idea) for idea in known(task) if idea.meant in kinds] for task in TASKS}
    return [
        pytest.param(few, id="some"),
        *(pytest.param(those, id=task, marks=pytest.mark.long) for task, those in whole.items()),
    ]


def lines_of(task: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("task", TASKS)
def test_a_committed_stream_is_what_its_generator_makes(task: str) -> None:
    assert (FOLDER / f"{task}.jsonl").read_text(encoding="utf-8") == as_jsonl(ideas_of(task)), "run make_streams.py"


def test_each_bundled_task_has_its_stream() -> None:
    assert set(TASKS) == {entry.name for entry in Catalogue().entries()}
    assert {path.name for path in FOLDER.iterdir()} == {f"{task}.jsonl" for task in TASKS}


@pytest.mark.parametrize("task", TASKS)
def test_a_stream_has_enough_candidates_of_each_kind(task: str) -> None:
    counted = Counter(idea.meant for idea in known(task))
    counted["repeated"] = sum(bool(idea.repeats) for idea in known(task))
    assert {kind: counted[kind] for kind, (low, high) in MIXTURE.items() if not low <= counted[kind] <= high} == {}
    assert len(known(task)) >= FEWEST
    assert (FOLDER / f"{task}.jsonl").stat().st_size < MOST_BYTES


@pytest.mark.parametrize("task", TASKS)
def test_a_line_has_an_id_of_its_own_and_a_parent_that_came_before_it(task: str) -> None:
    seen: set[str] = set()
    for line in lines_of(task):
        assert set(line) - {"parent"} == {"id", "source", "note"}, "what it is meant to be must not stand in it"
        assert line["id"] not in seen
        assert "parent" not in line or line["parent"] in seen
        assert line["note"]
        seen.add(line["id"])


@pytest.mark.parametrize("task", TASKS)
def test_only_what_is_said_to_be_repeated_has_the_source_of_another(task: str) -> None:
    once = Counter(idea.source for idea in known(task))
    twice = {idea.name for idea in known(task) if once[idea.source] > 1 and idea.repeats}
    assert len(known(task)) - len(once) == len(twice) == 1


@pytest.mark.parametrize("task", TASKS)
def test_the_scan_takes_every_candidate_as_triton(task: str) -> None:
    found = Catalogue().task(task)
    for idea in known(task):
        files = {"candidate.py": idea.source}
        scan = scan_files(files)
        assert why_forbidden(scan, found, files) == "", idea.name
        assert scan.language == "triton" or idea.meant == "unbuilt", idea.name


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompileHost]:
    with CompileHost(tmp_path_factory.mktemp("state")) as host:
        yield host


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("tried", some_or_all("unbuilt", "near", long=("wrong", "raises", "slow", "right")))
def test_a_candidate_builds_for_the_sizes_of_a_gpu_unless_that_is_its_fault(
    compiler: CompileHost, tried: list[tuple[str, Idea]]
) -> None:
    tasks = {name: Catalogue().task(name) for name in TASKS}
    told = {idea: compiler.compile(idea.source, tasks[task], gpu=True).report for task, idea in tried}
    expected = {idea: "build_failed" if idea.meant == "unbuilt" else "built" for idea in told}
    assert {idea.name: report.summary for idea, report in told.items() if report.verdict != expected[idea]} == {}
    assert {idea.name: report.library_calls for idea, report in told.items() if report.library_calls} == {}


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("tried", some_or_all("wrong", "raises", "near", long=("right", "slow")))
def test_a_candidate_is_right_or_wrong_or_raises_as_it_is_meant_to(tried: list[tuple[str, Idea]]) -> None:
    asked = [{"task": task, "name": f"{task} {idea.name}", "source": idea.source} for task, idea in tried]
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], input="".join(json.dumps(one) + "\n" for one in asked), capture_output=True,
        text=True, check=False, env=os.environ | {"TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = {one["name"]: one["verdict"] for one in map(json.loads, done.stdout.splitlines())}
    expected = {f"{task} {idea.name}": "right" if idea.is_right else idea.meant for task, idea in tried}
    assert set(told) == set(expected)
    assert {name: verdict for name, verdict in told.items() if verdict.split()[0] != expected[name]} == {}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    # The interpreter is slow: what a run is granted would not last for a stream.
    policy = Policy(caps=Budget(device_s=1e5))
    settings = Settings(data_dir=tmp_path_factory.mktemp("live"), device="cpu", policy=policy)
    server = build(lambda: open_services(settings))
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(Client(server)) as client:
        yield Live(portal, client, settings.data_dir)


def told_by_the_server(idea: Idea) -> set[str]:
    """Verdicts that a check on the CPU device may come to: it has sizes that blocks divide, and exact products."""
    if idea.meant == "unbuilt":
        return {"build_failed"}
    if idea.shown == "precision":
        return {"correct", "crashed"}
    if idea.shown == "smallest" and not idea.is_right:
        return {"crashed"} if idea.meant == "raises" else {"wrong_values", "nonfinite"}
    return {"correct"}


@pytest.mark.timeout(LIMIT_S)
def test_the_server_says_the_same_of_a_few(live: Live) -> None:
    few = sampled("softmax", "wrong", "raises", "near")
    checked_by_the_server(live, "softmax", [idea for idea in known("softmax") if idea.name in few])


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("task", TASKS)
def test_the_server_says_the_same_of_all(live: Live, task: str) -> None:
    checked_by_the_server(live, task, known(task))


def checked_by_the_server(live: Live, task: str, ideas: list[Idea]) -> None:
    run_id = live.run(task, rule="flat")
    told = {}
    for idea in ideas:
        sent = {"run_id": run_id, "source": idea.source, "note": idea.note}
        reply = live.call("compile", **sent, up_to="check_correctness", wait_s=100)
        told[idea.name] = reply["climbed"][-1]["verdict"] if reply.get("climbed") else reply["verdict"]
    assert {idea.name: told[idea.name] for idea in ideas if told[idea.name] not in told_by_the_server(idea)} == {}


def test_an_edit_must_find_its_words_and_a_parent_must_be_there() -> None:
    book = Notebook("t")
    book.add("a", maker("x = $X\n", X=1)(), "first")
    assert book.edited("a", ("x", "y")) == "y = 1\n"
    with pytest.raises(ValueError, match="a has no 'z'"):
        book.edited("a", ("z", "y"))
    with pytest.raises(ValueError, match="its parent 'b' is not"):
        book.add("c", "", "", parent="b")
    with pytest.raises(ValueError, match="no parameters of the template"):
        maker("$X", X=1)(Y=2)


def test_strays_come_at_the_same_places_each_time_and_after_their_parents() -> None:
    def order() -> list[str]:
        book = Notebook("t")
        for name in "abcdef":
            book.add(name, name, name)
        book.stray("g", "g", "g", parent="b")
        book.stray("h", "h", "h", parent="g")
        return [idea.name for idea in book.ideas()]

    assert order() == order()
    assert order().index("b") < order().index("g") < order().index("h")

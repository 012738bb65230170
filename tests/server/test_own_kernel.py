"""The user's own kernel: what the agent and its user are told about the gain over it."""

import re
from pathlib import Path

import pytest
from fakes import FakeRunner
from going_well import built, correct, qualified, steady, timed
from live_server import forward
from mcp import Client

from kernelgate.budget.model import Scored, Verdict
from kernelgate.server.app import build
from kernelgate.server.comparisons import gain
from kernelgate.server.measure import KNOWN_GOOD
from kernelgate.server.run_commands import show_runs, write_best
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import WorkerReply, WorkerRequest

REFERENCE = "SIZE = 4\nclass Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
GAINS = {"own": 2.0, "better": 3.0, "worse": 1.5}


def timed_as_named(request: WorkerRequest) -> WorkerReply:
    """The gain of a candidate is that of the word in its source."""
    source = request.files.get("candidate.py", "")
    found = 1.0 if KNOWN_GOOD in source else next(gain for word, gain in GAINS.items() if word in source)
    return timed(request, steady("one", gain=found))


def runner() -> FakeRunner:
    answers = {"qualify": qualified, "compile": built, "check_correctness": correct}
    return FakeRunner(lambda request: answers.get(request.procedure, timed_as_named)(request))


def settings_with_own_kernel(folder: Path) -> Settings:
    task = folder / "mine" / "op"
    task.mkdir(parents=True)
    (task / "reference.py").write_text(REFERENCE)
    (task / "kernel.py").write_text(forward("return x  # own"))
    (task / "task.toml").write_text('baseline = "kernel.py"\n[[workload]]\nname = "one"\n[workload.set]\nSIZE = 8\n')
    return Settings(data_dir=folder / "data", task_dirs=(folder / "mine",), device="cpu")


def settings_without_own_kernel(folder: Path) -> Settings:
    settings = settings_with_own_kernel(folder)
    (folder / "mine/op/task.toml").write_text('[[workload]]\nname = "one"\n[workload.set]\nSIZE = 8\n')
    return settings


async def precise_summary(client: Client, word: str) -> str:
    arguments = {"run_id": "r1", "source": forward(f"return x  # {word}"), "up_to": "precise_time"}
    return str((await client.call_tool("compile", arguments)).structured_content["summary"])


@pytest.mark.anyio
async def test_a_candidate_is_told_how_much_faster_it_is_than_the_users_own_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_with_own_kernel(tmp_path)
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner()}))) as client:
        await client.call_tool("start_run", {"task": "op", "rule": "flat"})
        own = (await client.call_tool("precise_time", {"candidate_id": "c1"})).structured_content
        worse, better = await precise_summary(client, "worse"), await precise_summary(client, "better")
    assert own["summary"].endswith("it is your own kernel")
    assert "; it is 0.74" in worse or "; it is 0.75" in worse
    assert "x as fast as your own kernel c1, between 1." in better
    assert "conservative" in better
    assert write_best(settings, "r1", None) == 0
    told = next(line for line in capsys.readouterr().out.splitlines() if "own kernel" in line)
    assert told.removeprefix("# it is ").partition(" (")[0] == better.partition("; it is ")[2].partition("; ")[0]
    assert show_runs(settings, "r1", close=False) == 0
    assert "The best, c3, is 1.5" in capsys.readouterr().out


@pytest.mark.anyio
async def test_where_no_kernel_is_named_nothing_is_said_about_one(tmp_path: Path) -> None:
    settings = settings_without_own_kernel(tmp_path)
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner()}))) as client:
        await client.call_tool("start_run", {"task": "op", "rule": "flat"})
        assert "own kernel" not in await precise_summary(client, "better")


@pytest.mark.anyio
async def test_a_candidate_is_told_against_the_best_that_was_proven_before_it(tmp_path: Path) -> None:
    settings = settings_without_own_kernel(tmp_path)
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner()}))) as client:
        await client.call_tool("start_run", {"task": "op", "rule": "flat"})
        first, second = await precise_summary(client, "worse"), await precise_summary(client, "better")
        third = await precise_summary(client, "own")
    assert "as fast as c" not in first
    assert re.search(r"; it is (1\.9|2\.0)\d+x as fast as c1, between ", second)
    assert re.search(r"; it is 0\.6\d+x as fast as c2, between ", third), "the best, not the last"
    assert second.count("conservative") == 1


def test_the_interval_over_the_own_kernel_reaches_from_the_worst_to_the_best_case() -> None:
    def scored(ratio: float, low: float, high: float) -> Scored:
        return Scored(candidate_id="c1", ratio=ratio, low=low, high=high, verdict=Verdict.faster, seq=1)

    assert gain(scored(3.0, 2.8, 3.2), scored(2.0, 1.6, 2.5)) == pytest.approx((1.5, 2.8 / 2.5, 3.2 / 1.6))


@pytest.mark.anyio
async def test_who_measures_again_and_again_is_told_all_that_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_without_own_kernel(tmp_path)
    gains = iter((2.0, 4.0))
    answers = {"qualify": qualified, "compile": built, "check_correctness": correct}

    def answer(request: WorkerRequest) -> WorkerReply:
        if request.procedure in answers:
            return answers[request.procedure](request)
        ours = KNOWN_GOOD in request.files.get("candidate.py", "")
        again = request.procedure == "precise_time" and not ours
        return timed(request, steady("one", gain=1.0 if ours else next(gains) if again else 2.0))

    async with Client(build(lambda: open_services(settings, runners={"cpu": FakeRunner(answer)}))) as client:
        await client.call_tool("start_run", {"task": "op", "rule": "flat"})
        assert "times here" not in await precise_summary(client, "lucky")
        again = await client.call_tool("precise_time", {"candidate_id": "c1", "fresh": True})
    assert re.search(
        r"; measured 2 times here, from (1\.9|2\.0)\d+x to (3\.9|4\.0)\d+x", again.structured_content["summary"]
    )
    assert write_best(settings, "r1", None) == 0
    assert "\n# measured 2 times here, from " in capsys.readouterr().out

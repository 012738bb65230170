"""What goes wrong in the demo ends in one sentence with exit status 2, never in a traceback."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from mcp.types import CallToolResult, TextContent
from rich.console import Console

from kernelgate.server.demo import play
from kernelgate.server.demo.agent import Agent
from kernelgate.server.demo.script import IDEAS
from kernelgate.server.settings import Settings

OPENED: dict[str, Any] = {"status": "ok", "summary": "r1", "run": {"run_id": "r1", "device": "cpu"}}
QUICK: dict[str, Any] = {"status": "ok", "summary": "maybe", "candidate_id": "c1", "verdict": "maybe_faster"}
PRECISE: dict[str, Any] = {"tool": "precise_time", "allowed": True, "arguments": {"candidate_id": "c1"}, "why": "?"}
GOOD: dict[str, Any] = {"status": "ok", "summary": "done"}
LOST: dict[str, Any] = {"status": "running", "summary": "at work", "job_id": "j1"}


def wrong(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def right(structure: dict[str, Any]) -> CallToolResult:
    return CallToolResult(content=[], structured_content=structure)


class Stage:
    """A client whose calls are answered from a table: tool → result or error; the others go well."""

    def __init__(self, answers: dict[str, CallToolResult | Exception]) -> None:
        self._answers = answers

    def __call__(self, _: object) -> "Stage":
        return self

    async def __aenter__(self) -> "Stage":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def call_tool(self, tool: str, *_: object, **__: object) -> CallToolResult:
        found = self._answers.get(tool, right(GOOD))
        if isinstance(found, Exception):
            raise ExceptionGroup("of the client", [found])
        return found


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"list_tasks": wrong("The book is busy; try again.")}, "The book is busy; try again."),
        ({"start_run": wrong("device 'cuda:9' is not here")}, "device 'cuda:9' is not here."),
        ({"get_task": MCPError(code=-32000, message="Connection closed")}, "server is gone (Connection closed)"),
        (
            {"start_run": right(LOST), "job": right({"job": {"job_id": "j1", "state": "cancelled"}})},
            "start_run was not finished: its job j1 is cancelled.",
        ),
        (
            {"start_run": right(LOST), "job": right({"job": {"job_id": "j1", "state": "running"}})},
            "start_run does not end: its job j1 was waited for 15 times.",
        ),
    ],
    ids=["busy", "device", "gone", "cancelled", "endless"],
)
def test_an_error_in_the_demo_is_one_sentence(
    answers: dict[str, CallToolResult | Exception], words: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(play, "Client", Stage(answers))
    assert play.run_demo(Settings(data_dir=tmp_path, device="cpu")) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_an_error_of_the_demo_itself_stays_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "Client", Stage({"get_task": ZeroDivisionError("ours")}))
    with pytest.raises(ExceptionGroup):
        play.run_demo(Settings(data_dir=tmp_path, device="cpu"))


async def played(answers: dict[str, CallToolResult | Exception]) -> tuple[Agent, str]:
    """The script against a table of answers: the agent after it, and what it printed."""
    printed = StringIO()
    stage: Any = Stage({"start_run": right(OPENED), **answers})
    agent = Agent(stage, Console(file=printed, width=200))
    await agent.play()
    return agent, printed.getvalue()


@pytest.mark.anyio
async def test_an_error_reply_ends_one_idea_and_not_the_script() -> None:
    agent, printed = await played({"compile": wrong("compile could not run: the worker is gone.")})
    assert printed.count("compile could not run: the worker is gone.") == len(IDEAS)
    assert "+ get_budget" in printed
    assert agent.best is None


@pytest.mark.anyio
@pytest.mark.parametrize("status", ["failed", "refused"])
async def test_a_reply_that_is_not_ok_needs_nothing_beside_its_summary(status: str) -> None:
    reply = {"status": status, "summary": "no more", "candidate_id": "c1"}
    _, printed = await played({"compile": right(reply)})
    assert printed.count("no more") == len(IDEAS)
    _, printed = await played(
        {"compile": right({**QUICK, "next_steps": [PRECISE]}), "precise_time": right({**reply, "summary": "not now"})}
    )
    assert printed.count("not now") == len(IDEAS)


@pytest.mark.anyio
async def test_the_reply_of_a_job_is_taken_for_that_of_the_tool() -> None:
    done = {"job_id": "j1", "state": "done", "reply": {**GOOD, "verdict": "faster", "report": {"ratio": 2.0}}}
    agent, _ = await played({
        "compile": right({**QUICK, "next_steps": [PRECISE]}),
        "precise_time": right(LOST),
        "job": right({"job": done}),
    })  # fmt: skip
    assert agent.best == ("c1", 2.0)

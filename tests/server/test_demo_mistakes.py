"""What goes wrong in the demo ends in one sentence with exit status 2, never in a traceback."""

from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from mcp.types import CallToolResult, TextContent

from kernelgate.server.demo import play
from kernelgate.server.settings import Settings

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
    ],
    ids=["busy", "device", "gone", "cancelled"],
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

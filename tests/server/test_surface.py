"""The MCP surface: what is listed, how wrong calls are answered, and that both eras say the same."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.server.lowlevel import Server
from write_snapshots import forms

from kernelgate.server import replies
from kernelgate.server.app import INSTRUCTIONS, build, face
from kernelgate.server.services import Services, open_services
from kernelgate.server.settings import Settings
from kernelgate.tools import get_budget
from kernelgate.tools.kit.catalogue import find_tools

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
TOOLS = [
    "check_correctness", "compile", "get_budget", "get_candidate", "get_task", "job", "list_candidates", "list_tasks",
    "precise_time", "profile", "quick_time", "start_run",
]  # fmt: skip
SECRET = "secret-7f3a"


def server(data_dir: Path) -> Server[Services]:
    return build(lambda: open_services(Settings(data_dir=data_dir, device="cpu")))


@asynccontextmanager
async def connected(data_dir: Path, mode: str = "auto") -> AsyncIterator[Client]:
    async with Client(server(data_dir), mode=mode) as client:
        yield client


def text_of(result: Any) -> str:
    return "".join(part.text for part in result.content)


def test_the_twelve_tools_are_found_in_order() -> None:
    assert [tool.name for tool in find_tools()] == TOOLS


@pytest.mark.parametrize("name", forms())
def test_what_is_listed_has_the_form_that_is_in_its_snapshot(name: str) -> None:
    """`make snapshots` writes them anew; the diff is then part of the review."""
    assert forms()[name] == json.loads((SNAPSHOTS / f"{name}.json").read_text(encoding="utf-8"))


def test_the_list_stays_small_enough_for_clients_that_defer_large_ones() -> None:
    forms = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in face().listing]
    inputs = [[form["name"], form["title"], form["description"], form["inputSchema"]] for form in forms]
    assert sum(len(json.dumps(part, separators=(",", ":")).encode()) for part in inputs) / 4 < 3_000
    assert len(json.dumps(forms, separators=(",", ":")).encode()) / 4 < 8_000


def test_names_and_descriptions_fit_the_narrowest_clients() -> None:
    for tool in face().listing:
        assert len(tool.name) <= 30
        assert len(tool.description or "") <= 600, tool.name
    assert len(INSTRUCTIONS) <= 2_000
    assert "compile" in INSTRUCTIONS[:512]
    assert "job" in INSTRUCTIONS


def test_only_look_ups_claim_to_be_read_only() -> None:
    read_only = {tool.name for tool in face().listing if tool.annotations and tool.annotations.read_only_hint}
    assert read_only == {"get_budget", "get_candidate", "get_task", "list_candidates", "list_tasks"}


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_both_eras_list_the_same_tools_in_the_same_order(tmp_path: Path, mode: str) -> None:
    async with connected(tmp_path, mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_wrong_call_is_answered_with_what_is_allowed(tmp_path: Path, mode: str) -> None:
    async with connected(tmp_path, mode) as client:
        for tool, arguments, expected in (
            ("quicktime", {}, ["no tool 'quicktime'", "did you mean 'quick_time'"]),
            ("get_budget", {"run": "r1"}, ["unknown argument 'run'", "did you mean 'run_id'", "'run_id' is missing"]),
            ("get_budget", {"run_id": "7"}, ["run_id"]),
            ("get_budget", {"run_id": "r9"}, ["unknown run"]),
            ("get_candidate", {"candidate_id": "c9"}, ["unknown candidate"]),
            ("job", {"job_id": "j9"}, ["unknown job"]),
            ("job", {"job_id": "j1", "action": "stop"}, ["action", "'wait' or 'cancel'"]),
            ("list_tasks", {"limit": "many"}, ["limit", "integer"]),
            ("list_tasks", {"limit": 10_000}, ["limit", "300"]),
            ("get_task", {"task": "softmx"}, ["no task 'softmx'", "softmax"]),
            ("start_run", {"task": "softmax", "device": "cuda:7"}, ["cuda:7", "not here"]),
            ("start_run", {"task": "softmax", "device_s": 1e6}, ["above the server's cap of 120"]),
            ("compile", {"run_id": "r1", "source": "x" * 600_000}, ["600,0", "524,288"]),
            ("compile", {"run_id": "r1", "source": "x", "files": {"candidate.py": "y"}}, ["source", "files"]),
            ("compile", {"run_id": "r1"}, ["source", "files"]),
            ("compile", {"run_id": "r1", "files": {"kernel.py": "y"}}, ["candidate.py"]),
            ("compile", {"run_id": "r1", "files": {"candidate.py": "y", "../x.py": "z"}}, ["../x.py"]),
            ("compile", {"run_id": "r1", "source": "\ud800"}, ["Unicode"]),
            ("compile", {"run_id": "r9", "source": "x"}, ["unknown run"]),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error, (tool, arguments)
            for part in expected:
                assert part in text_of(result), (tool, arguments, text_of(result))
            assert len(text_of(result)) < 1_500


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_text_of_an_unexpected_exception_never_reaches_the_client(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(replies, "result_of", explode)
    monkeypatch.setattr(get_budget, "_rung_budget", explode)
    async with connected(tmp_path, mode) as client:
        result = await client.call_tool("list_tasks", {})
    assert result.is_error
    assert SECRET not in text_of(result)
    reference = text_of(result).partition("reference ")[2][:8]
    assert reference in caplog.text
    assert SECRET in caplog.text


@pytest.mark.anyio
async def test_a_task_shows_its_public_workloads_and_only_counts_the_hidden_ones(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        result = await client.call_tool("get_task", {"task": "softmax"})
    shown = result.structured_content
    assert shown["held_out_workloads"] == 2
    assert "tail_cpu" not in json.dumps(shown)
    assert "class Model" in shown["source"]
    assert shown["next_steps"][0]["tool"] == "start_run"


@pytest.mark.anyio
async def test_a_list_is_paged_and_says_how_to_go_on(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        page = (await client.call_tool("list_tasks", {"limit": 2, "offset": 1})).structured_content
    assert [task["name"] for task in page["tasks"]] == ["layernorm_residual", "linear_gelu"]
    assert page["total"] == 6
    assert "offset 3" in page["summary"]


def test_what_is_null_or_empty_is_left_out_but_zero_and_false_stay() -> None:
    value = {"a": None, "b": "", "c": [], "d": {"e": None}, "f": 0, "g": False, "h": [{"i": None, "j": 1}]}
    assert replies.pruned(value) == {"f": 0, "g": False, "h": [{"j": 1}]}

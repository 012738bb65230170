"""Resources: what the tools look up, by address, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from connecting import BOTH_ERAS, BOTH_WAYS, book_of, connected, of_another_account, read
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS

from kernelgate.budget.model import Rung
from kernelgate.server import resources
from kernelgate.server.resources import MOST_BYTES, VIEWS, cut, parsed
from kernelgate.server.shelf import Shelf
from kernelgate.tools.kit.book import ToolMistake

SECRET = "secret-7f3a"
PLANT = f"""
from kernelgate.server.shelf import Shelf
async def explode(*_, **__):
    raise RuntimeError({SECRET!r})
Shelf.runs = explode
"""
MIRRORED: list[tuple[str, str, dict[str, Any]]] = [
    ("kernelgate://tasks", "list_tasks", {}),
    ("kernelgate://tasks/softmax", "get_task", {"task": "softmax"}),
    ("kernelgate://runs/r1", "get_budget", {"run_id": "r1"}),
    ("kernelgate://runs/r1/candidates", "list_candidates", {"run_id": "r1"}),
    ("kernelgate://candidates/c1", "get_candidate", {"candidate_id": "c1"}),
]
NO_ADDRESS = [
    "", "kernelgate://", "kernelgate://nothing", "kernelgate:/runs", "KERNELGATE://runs", "kernelgate://runs/",
    "kernelgate://runs/../runs", "kernelgate://runs/r1/../r2", "kernelgate://tasks/..", "kernelgate://tasks/../../etc",
    "kernelgate://tasks//softmax", "kernelgate://tasks/softmax/", "kernelgate://tasks/%2e%2e", "kernelgate://runs/%721",
    "kernelgate://candidates/c1/texts/..", "kernelgate://candidates/c1/texts/..%2fledger.db",
    "kernelgate://candidates/c1/texts/a/b", "kernelgate://candidates/c1/texts/.hidden", "kernelgate://runs/r1?x=1",
    "kernelgate://runs/r1#x", "kernelgate://runs/r0", "kernelgate://runs/r01", "kernelgate://runs/R1",
    "kernelgate://runs/r1 ", "kernelgate://runs/r1\n", "kernelgate://runs/r1\x00", "kernelgate://runs/r\u0661",
    "kernelgate://runs/\u02b31", "kernelgate://run\u0455/r1", "kernelgate\uff1a//runs", "kernelgate://runs/{run_id}",
    "kernelgate://user@runs/r1", "file:///etc/passwd", "http://localhost/runs/r1", "/etc/passwd", "runs/r1",
    "kernelgate://tasks/" + "a" * 300, "kernelgate://runs/r" + "1" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("uri", NO_ADDRESS, ids=lambda uri: ascii(uri[:40]))
def test_an_address_is_taken_letter_by_letter_or_not_at_all(uri: str) -> None:
    with pytest.raises(ToolMistake, match="There is no resource") as refused:
        parsed(uri)
    assert len(str(refused.value)) < 900
    assert str(refused.value).isascii(), "what only looks like a letter is seen to be another one"


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_a_wrong_address_is_one_clear_error_to_every_client(tmp_path: Path, way: str, mode: str) -> None:
    book_of(tmp_path)
    async with connected(way, tmp_path, mode) as client:
        for uri, words in (
            ("kernelgate://runs/../ledger.db", "There is no resource 'kernelgate://runs/../ledger.db'"),
            ("file:///etc/passwd", "The resources are: kernelgate://tasks"),
            ("kernelgate://runs/r9", "unknown run 'r9'"),
            ("kernelgate://runs/r9/ledger", "unknown run 'r9'"),
            ("kernelgate://candidates/c9", "unknown candidate 'c9'"),
            ("kernelgate://candidates/c1/texts/ledger.db", "has no text 'ledger.db'; it has: candidate.py"),
            ("kernelgate://tasks/softmx", "there is no task 'softmx'; did you mean softmax"),
        ):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            assert (refused.value.code, refused.value.data) == (INVALID_PARAMS, {"uri": uri})
            assert words in refused.value.message, uri


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_every_template_has_something_to_read_and_the_lists_are_the_same_each_time(
    tmp_path: Path, way: str, mode: str
) -> None:
    book_of(tmp_path)
    values = {"task": "softmax", "run_id": "r1", "candidate_id": "c1", "text": "candidate.py"}
    async with connected(way, tmp_path, mode) as client:
        templates = (await client.list_resource_templates()).resource_templates
        assert [t.uri_template for t in templates] == [view.template for view in VIEWS if view.variables]
        listed = (await client.list_resources()).resources
        assert [r.uri for r in listed] == ["kernelgate://tasks", "kernelgate://runs", "kernelgate://runs/r1"]
        assert listed == (await client.list_resources()).resources
        for view in VIEWS:
            text = await read(client, view.template.format_map(values))
            assert text == "# mine\n" if view.name == "text" else json.loads(text)["summary"], view.template


@pytest.mark.anyio
@BOTH_ERAS
async def test_a_resource_says_what_its_tool_says(tmp_path: Path, mode: str) -> None:
    book_of(tmp_path)
    async with connected("memory", tmp_path, mode) as client:
        for uri, tool, arguments in MIRRORED:
            said = (await client.call_tool(tool, arguments)).structured_content
            assert json.loads(await read(client, uri)) == said, uri


@pytest.mark.anyio
async def test_a_runs_ledger_has_what_each_tool_took_and_the_last_rows(tmp_path: Path) -> None:
    book = book_of(tmp_path)
    candidate = book.candidate("# refused")
    book.refused(candidate, Rung.precise)
    async with connected("memory", tmp_path, "auto") as client:
        shown = json.loads(await read(client, "kernelgate://runs/r1/ledger"))
    assert shown["spent_s"] == {"compile": 0.0, "check_correctness": 0.5, "quick_time": 0.5, "precise_time": 0.5}
    newest = shown["rows"][0]
    assert (newest["kind"], newest["candidate_id"], newest["refusal_kind"]) == ("refuse", "c2", "rung_missing")
    assert newest["reason"]
    assert [row["seq"] for row in shown["rows"]] == sorted((row["seq"] for row in shown["rows"]), reverse=True)
    assert {"purse_json", "hash", "account_id"} & newest.keys() == set()


@pytest.mark.anyio
@BOTH_ERAS
async def test_what_belongs_to_another_account_is_neither_listed_nor_read(tmp_path: Path, mode: str) -> None:
    theirs = of_another_account(book_of(tmp_path))
    async with connected("memory", tmp_path, mode) as client:
        listed = [r.uri for r in (await client.list_resources()).resources]
        assert "kernelgate://runs/r2" not in listed
        assert "r2" not in await read(client, "kernelgate://runs")
        for uri, words in (
            ("kernelgate://runs/r2", "unknown run"),
            ("kernelgate://runs/r2/candidates", "unknown run"),
            ("kernelgate://runs/r2/ledger", "unknown run"),
            (f"kernelgate://candidates/{theirs.candidate_id}", "unknown candidate"),
            (f"kernelgate://candidates/{theirs.candidate_id}/texts/candidate.py", "unknown candidate"),
        ):
            with pytest.raises(MCPError, match=words):
                await client.read_resource(uri)


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_the_text_of_an_unexpected_exception_never_reaches_a_client_through_a_resource(
    tmp_path: Path, way: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def explode(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Shelf, "runs", explode)
    async with connected(way, tmp_path, mode, plant=PLANT) as client:
        with pytest.raises(MCPError) as read_failed:
            await client.read_resource("kernelgate://runs")
        with pytest.raises(MCPError) as list_failed:
            await client.list_resources()
    for error in (read_failed.value, list_failed.value):
        assert error.code == INTERNAL_ERROR
        assert "Something failed in the server (reference" in error.message
        assert SECRET not in f"{error.message} {error.data}"


@pytest.mark.anyio
async def test_what_is_too_long_for_a_resource_says_which_call_has_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = book_of(tmp_path)
    book.candidate("".join(f"# line {number}\n" for number in range(20_000)))
    async with connected("memory", tmp_path, "auto") as client:
        text = await read(client, "kernelgate://candidates/c2/texts/candidate.py")
        assert len(text.encode()) < MOST_BYTES + 300
        kept = text[: text.index("…")].splitlines()
        assert f"get_candidate(candidate_id='c2', text='candidate.py', offset={len(kept)}) reads on." in text
        page = await client.call_tool(
            "get_candidate", {"candidate_id": "c2", "text": "candidate.py", "offset": len(kept)}
        )
        assert page.structured_content["page"]["text"].startswith(f"# line {len(kept)}\n")
        monkeypatch.setattr(resources, "MOST_BYTES", 300)
        short = json.loads(await read(client, "kernelgate://runs/r1"))
    assert short.keys() == {"summary", "left_out"}
    assert "get_budget(run_id='r1') has the whole" in short["left_out"]


@pytest.mark.parametrize("text", ["x" * (MOST_BYTES + 1), "é" * MOST_BYTES, "a\n" + "x" * MOST_BYTES])
def test_a_text_of_long_lines_is_cut_within_the_limit(text: str) -> None:
    shown = cut(text, lambda line: f"from {line}")
    assert len(shown.encode()) < MOST_BYTES + 100
    assert shown.endswith(f"from {int(text.startswith('a'))} reads on.")

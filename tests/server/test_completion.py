"""Completion: ids that the caller may name, and no others."""

from pathlib import Path

import pytest
from connecting import BOTH_ERAS, BOTH_WAYS, book_of, connected, of_another_account
from mcp import Client, MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, Completion, PromptReference, ResourceTemplateReference

from kernelgate.server import shelf
from kernelgate.server.completion import MOST
from kernelgate.server.gpus import Gpu
from kernelgate.server.shelf import Shelf

SECRET = "secret-7f3a"


def template(uri: str) -> ResourceTemplateReference:
    return ResourceTemplateReference(uri=f"kernelgate://{uri}")


RUN, CANDIDATE, TEXT = template("runs/{run_id}"), template("candidates/{candidate_id}"), template(
    "candidates/{candidate_id}/texts/{text}"
)  # fmt: skip
OPTIMISE, AUDIT = PromptReference(name="optimise"), PromptReference(name="audit")


async def complete(
    client: Client, ref: PromptReference | ResourceTemplateReference, name: str, begin: str, **before: str
) -> Completion:
    asked = {"name": name, "value": begin}
    return (await client.complete(ref, asked, context_arguments=before or None)).completion


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_ids_of_the_account_that_begin_so_are_offered_newest_first(tmp_path: Path, way: str, mode: str) -> None:
    book = book_of(tmp_path)
    of_another_account(book)
    book.candidate("# a second one")
    async with connected(way, tmp_path, mode) as client:
        for ref, name, begin, before, expected in (
            (RUN, "run_id", "", {}, ["r1"]),
            (AUDIT, "run_id", "r", {}, ["r1"]),
            (RUN, "run_id", "r2", {}, []),
            (RUN, "run_id", "%", {}, []),
            (RUN, "run_id", "_1", {}, []),
            (CANDIDATE, "candidate_id", "c", {}, ["c3", "c1"]),
            (CANDIDATE, "candidate_id", "c", {"run_id": "r1"}, ["c3", "c1"]),
            (CANDIDATE, "candidate_id", "c", {"run_id": "r2"}, []),
            (CANDIDATE, "candidate_id", "c2", {}, []),
            (TEXT, "text", "cand", {"candidate_id": "c1"}, ["candidate.py"]),
            (TEXT, "text", "", {}, []),
            (OPTIMISE, "task", "s", {}, ["softmax"]),
            (template("tasks/{task}"), "task", "l", {}, ["layernorm_residual", "linear_gelu"]),
            (OPTIMISE, "device", "cp", {}, ["cpu"]),
            (OPTIMISE, "goal", "1.5", {}, []),
            (RUN, "run_id", "r" * 10_000, {}, []),
            (RUN, "run_id", "r1\x00", {}, []),
        ):
            found = await complete(client, ref, name, begin, **before)
            assert found.values == expected, (ref, name, begin, before)
            assert (found.total, found.has_more) == (len(expected), False)


@pytest.mark.anyio
async def test_of_many_ids_a_hundred_are_offered_and_the_answer_says_that_there_are_more(tmp_path: Path) -> None:
    book = book_of(tmp_path)
    for number in range(MOST):
        book.candidate(f"# {number} of many")
    async with connected("memory", tmp_path, "auto") as client:
        found = await complete(client, CANDIDATE, "candidate_id", "c")
        assert found.values == [f"c{number}" for number in range(MOST + 1, 1, -1)]
        assert (found.total, found.has_more) == (None, True)
        assert (await complete(client, CANDIDATE, "candidate_id", "c1")).total == 13


@pytest.mark.anyio
async def test_devices_are_those_that_can_be_measured_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "list_gpus", lambda: (Gpu(uuid="GPU-1"), Gpu(problem="it is lost"), Gpu(uuid="GPU-2")))
    async with connected("memory", tmp_path, "auto") as client:
        assert (await complete(client, OPTIMISE, "device", "")).values == ["cpu", "cuda:0", "cuda:2"]


@pytest.mark.anyio
@BOTH_ERAS
async def test_what_has_nothing_to_complete_is_one_clear_error(tmp_path: Path, mode: str) -> None:
    of_another_account(book_of(tmp_path))
    async with connected("memory", tmp_path, mode) as client:
        for ref, name, before, words in (
            (PromptReference(name="optimize"), "task", {}, "There is no prompt 'optimize'"),
            (OPTIMISE, "tsk", {}, "prompt optimise has no argument 'tsk'; it has: task, device, device_s, goal."),
            (template("../{task}"), "task", {}, "There is no resource"),
            (template("runs"), "run_id", {}, "has no argument 'run_id'; it has: none."),
            (TEXT, "text", {"candidate_id": "c2"}, "unknown candidate 'c2'"),
        ):
            with pytest.raises(MCPError) as refused:
                await complete(client, ref, name, "", **before)
            assert refused.value.code == INVALID_PARAMS
            assert words in refused.value.message


@pytest.mark.anyio
@BOTH_ERAS
async def test_the_text_of_an_unexpected_exception_never_reaches_a_client_through_a_completion(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def explode(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Shelf, "run_ids", explode)
    async with connected("memory", tmp_path, mode) as client:
        with pytest.raises(MCPError) as failed:
            await complete(client, RUN, "run_id", "")
    assert failed.value.code == INTERNAL_ERROR
    assert SECRET not in f"{failed.value.message} {failed.value.data}"

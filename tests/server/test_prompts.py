"""Prompts and the instructions: short, and every call that they name is a call that the server takes."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from connecting import BOTH_ERAS, BOTH_WAYS, book_of, connected, of_another_account
from mcp import Client, MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS

from kernelgate.server.app import INSTRUCTIONS, face
from kernelgate.server.resources import parsed
from kernelgate.server.services import Services

SECRET = "secret-7f3a"
PLANT = f"""
from kernelgate.server.services import Services
def explode(*_, **__):
    raise RuntimeError({SECRET!r})
Services.task = Services.run = explode
"""
CALL = re.compile(r"\b(\w+)\(([^()]*)\)")
OF_THE_READER = {"RUN_ID": "r1", "JOB_ID": "j1", "CANDIDATE_ID": "c1", "PARENT_ID": "c1"}
"""What a prompt leaves open, and a value of its kind; everything else is text."""
PROMPTS = [
    ("optimise", {"task": "softmax"}),
    ("optimise", {"task": "softmax", "device": "cpu", "device_s": "30", "goal": "2x {now}\n or better."}),
    ("audit", {"run_id": "r1"}),
]


async def text_of(client: Client, name: str, arguments: dict[str, str]) -> str:
    (message,) = (await client.get_prompt(name, arguments)).messages
    return str(message.content.text)  # type: ignore[union-attr]  # ours are all text


def calls_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Tools with the arguments that they are called with."""
    found = []
    for name, inside in CALL.findall(text):
        call = ast.parse(f"{name}({inside})", mode="eval").body
        assert isinstance(call, ast.Call)
        assert not call.args, f"{name}: arguments have names"
        found.append((name, {keyword.arg or "": value_of(keyword.value) for keyword in call.keywords}))
    return found


def value_of(node: ast.expr) -> Any:
    return OF_THE_READER.get(node.id, "some text") if isinstance(node, ast.Name) else ast.literal_eval(node)


@pytest.mark.anyio
@BOTH_ERAS
@pytest.mark.parametrize(("name", "arguments"), PROMPTS, ids=["optimise", "optimise-all", "audit"])
async def test_every_call_that_a_prompt_names_is_one_that_the_server_takes(
    tmp_path: Path, mode: str, name: str, arguments: dict[str, str]
) -> None:
    book_of(tmp_path)
    tools = face().tools
    async with connected("memory", tmp_path, mode) as client:
        text = await text_of(client, name, arguments)
    calls = calls_in(text)
    assert len(calls) >= 5
    for tool, given in calls:
        assert tools[tool].args.model_validate(given), (tool, given)
    for address in re.findall(r"kernelgate://[\w/]+", text):
        assert parsed(address)[1] == {"run_id": "r1"}
    assert len(text) < 3_000


@pytest.mark.anyio
async def test_optimise_hands_on_what_it_was_given_and_climbs_rung_by_rung(tmp_path: Path) -> None:
    async with connected("memory", tmp_path, "auto") as client:
        text = await text_of(client, *PROMPTS[1])
    assert "Goal: 2x {now} or better." in text
    assert ("start_run", {"task": "softmax", "device": "cpu", "device_s": 30}) in calls_in(text)
    order = [text.index(f"{tool}(") for tool in ("get_task", "start_run", "compile", "job", "precise_time", "profile")]
    assert order == sorted(order)


@pytest.mark.anyio
async def test_audit_asks_for_nothing_that_is_charged(tmp_path: Path) -> None:
    book_of(tmp_path)
    async with connected("memory", tmp_path, "auto") as client:
        named = {tool for tool, _ in calls_in(await text_of(client, "audit", {"run_id": "r1"}))}
    free = {tool.name for tool in face().listing if tool.annotations and tool.annotations.read_only_hint}
    assert named == {"get_budget", "list_candidates", "get_candidate"}
    assert named <= free


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_a_wrong_prompt_is_one_clear_error(tmp_path: Path, way: str, mode: str) -> None:
    of_another_account(book_of(tmp_path))
    async with connected(way, tmp_path, mode) as client:
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["audit", "optimise"]
        for name, arguments, words in (
            ("optimize", {}, "There is no prompt 'optimize'. The prompts are: audit, optimise."),
            ("optimise", {}, "argument 'task' is missing: Name from list_tasks"),
            ("optimise", {"task": ""}, "argument 'task' is missing"),
            ("optimise", {"task": "softmx"}, "there is no task 'softmx'; did you mean softmax"),
            ("optimise", {"task": "softmax", "budget": "9"}, "unknown argument 'budget'; optimise takes: task, device"),
            ("optimise", {"task": "softmax", "device": "cuda:77"}, "cuda:77"),
            ("optimise", {"task": "softmax", "device": "tpu"}, "tpu names no device"),
            ("optimise", {"task": "softmax", "device_s": "much"}, "device_s"),
            ("optimise", {"task": "softmax", "device_s": "inf"}, "device_s"),
            ("optimise", {"task": "softmax", "goal": "x" * 501}, "goal: String should have at most 500"),
            ("audit", {"run_id": "7"}, "run_id: an id looks like r1"),
            ("audit", {"run_id": "r9"}, "unknown run 'r9'"),
            ("audit", {"run_id": "r2"}, "unknown run 'r2'"),
        ):
            with pytest.raises(MCPError) as refused:
                await client.get_prompt(name, arguments)
            assert refused.value.code == INVALID_PARAMS
            assert words in refused.value.message, refused.value.message


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_the_text_of_an_unexpected_exception_never_reaches_a_client_through_a_prompt(
    tmp_path: Path, way: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Services, "task", explode)
    monkeypatch.setattr(Services, "run", explode)
    async with connected(way, tmp_path, mode, plant=PLANT) as client:
        for name, arguments in PROMPTS:
            with pytest.raises(MCPError) as failed:
                await client.get_prompt(name, arguments)
            assert failed.value.code == INTERNAL_ERROR
            assert "Something failed in the server (reference" in failed.value.message
            assert SECRET not in f"{failed.value.message} {failed.value.data}"


def test_the_first_512_characters_of_the_instructions_stand_alone() -> None:
    """Some clients read no more: the loop, what a refusal is, and what to do with a job."""
    first = INSTRUCTIONS[:512]
    loop = [
        "list_tasks", "get_task", "start_run", "compile", "check_correctness", "quick_time", "precise_time", "profile",
    ]  # fmt: skip
    places = [first.index(f" {tool}") for tool in loop]
    assert places == sorted(places)
    assert "a refusal names the missing evidence." in first
    assert "A reply with status running has a job_id: call job." in first
    assert set(re.findall(r"\b[a-z]+_[a-z]+\b", INSTRUCTIONS)) - {
        "candidate_id", "up_to", "parent_id", "next_steps", "job_id", "stop_advice",
    } <= face().tools.keys()  # fmt: skip

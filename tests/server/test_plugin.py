"""The plugin and the skill that ship: true to the tools as they are, and installed from one folder."""

import json
import re
import subprocess
import sys
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from kernelgate.budget.model import LADDER, TOOL_OF_RUNG, JobState, RefusalKind, Rung, Verdict
from kernelgate.server.clients import client_config
from kernelgate.server.installed import package_version
from kernelgate.server.plugin_command import HINT, SHIPPED, make_plugin
from kernelgate.server.trouble import Trouble
from kernelgate.tools.kit.catalogue import find_tools
from kernelgate.tools.kit.envelope import NextStep, Refusal, RungReply

TOOLS = {tool.name: tool for tool in find_tools()}
SKILL = SHIPPED / "skills/kernelgate/SKILL.md"
SNIPPET = SHIPPED / "agents-snippet.md"
SPAN = re.compile(r"`([^`]+)`")
CALL = re.compile(r"(\w+)\((.*)\)")
IN_A_CANDIDATE = {"ModelNew", "Model", "forward"}
"""Names of KernelBench's form."""
MOST_SKILL_CHARACTERS = 6000
"""About 1,500 tokens: an agent pays for them each time that it opens the skill."""


def document(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SHIPPED / path).read_text(encoding="utf-8"))
    return found


def words_of(model: type[BaseModel]) -> set[str]:
    """The names of a model's fields, and of the values that a closed field may have."""
    values = {
        str(word)
        for field in model.model_fields.values()
        for part in (field.annotation, *get_args(field.annotation))
        if get_origin(part) is Literal
        for word in get_args(part)
    }
    enums = [field.annotation for field in model.model_fields.values() if isinstance(field.annotation, type)]
    return set(model.model_fields) | values | {str(w) for e in enums if issubclass(e, StrEnum) for w in e}


def known() -> set[str]:
    """Every name that a text may quote."""
    known = set(TOOLS) | {str(verdict) for verdict in Verdict} | set(get_args(RefusalKind)) | set(get_args(JobState))
    models: tuple[type[BaseModel], ...] = (RungReply, Refusal, NextStep, *(tool.args for tool in TOOLS.values()))
    return known.union(*(words_of(model) for model in models)) | IN_A_CANDIDATE


def spans(path: Path) -> list[str]:
    return [span.replace("\n", " ") for span in SPAN.findall(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", [SKILL, SNIPPET], ids=lambda path: path.name)
def test_every_name_that_the_text_quotes_is_one_of_the_tools_arguments_or_answers(path: Path) -> None:
    single = {span.split("=")[0] for span in spans(path) if re.fullmatch(r"\w+(=.*)?", span)}
    assert single - known() == set()


@pytest.mark.parametrize("path", [SKILL, SNIPPET], ids=lambda path: path.name)
def test_every_call_that_the_text_shows_has_arguments_of_that_tool_with_values_that_it_takes(path: Path) -> None:
    calls = [found for span in spans(path) if (found := CALL.fullmatch(span))]
    for call in calls:
        args = TOOLS[call[1]].args
        for given in filter(None, (part.strip() for part in call[2].split(","))):
            name, _, value = given.partition("=")
            assert name in args.model_fields, call[0]
            allowed = typing.get_args(args.model_fields[name].annotation)
            assert not value or json.loads(value) in allowed or not allowed, call[0]


def test_nothing_quoted_is_left_unread() -> None:
    odd = [span for span in spans(SKILL) if not CALL.fullmatch(span) and not re.fullmatch(r"\w+(=.*)?", span)]
    assert odd == ["kernelgate best RUN -o FILE"]


def test_the_skill_names_every_tool_and_every_kind_of_refusal() -> None:
    text = SKILL.read_text(encoding="utf-8")
    assert [name for name in (*TOOLS, *get_args(RefusalKind)) if f"`{name}" not in text] == []


def test_the_skill_climbs_the_ladder_in_its_order() -> None:
    text = SKILL.read_text(encoding="utf-8")
    places = [text.index(f"`{TOOL_OF_RUNG[rung]}(") for rung in (*LADDER, Rung.profile)]
    assert places == sorted(places)


def test_the_skill_has_the_head_that_clients_look_for_and_is_short() -> None:
    text = SKILL.read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == SKILL.parent.name == "kernelgate"
    assert re.fullmatch(r"[a-z0-9-]{1,64}", fields["name"])
    assert len(fields["description"]) <= 1024
    assert ": " not in fields["description"], "plain YAML ends there"
    assert len(body) < MOST_SKILL_CHARACTERS


def test_the_manifests_name_the_plugin_and_its_version() -> None:
    plugin, market = document(".claude-plugin/plugin.json"), document(".claude-plugin/marketplace.json")
    assert plugin["name"] == market["name"] == "kernelgate"
    assert plugin["version"] == package_version("kernelgate")
    assert [(one["name"], one["source"]) for one in market["plugins"]] == [("kernelgate", "./")]


def test_the_shipped_entry_is_the_one_that_config_makes_for_a_server_on_the_path() -> None:
    assert document(".mcp.json") == json.loads(client_config("claude-code", ["kernelgate", "serve"], {}).text)


def test_a_made_plugin_starts_this_installation_and_replaces_an_older_one(tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "old").touch()
    assert make_plugin(folder, ["--device", "cpu"]) == folder
    entry = json.loads((folder / ".mcp.json").read_text(encoding="utf-8"))["mcpServers"]["kernelgate"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["serve", "--device", "cpu"]
    made = {path.relative_to(folder) for path in folder.rglob("*")}
    assert made == {path.relative_to(SHIPPED) for path in SHIPPED.rglob("*")}
    assert [path.name for path in tmp_path.iterdir()] == ["plugin"]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match=r"the plugin cannot be made in .*nosuch"):
        make_plugin(tmp_path / "nosuch" / "plugin", [])


def test_the_command_prints_the_path_alone_so_that_a_shell_can_hand_it_on(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "kernelgate.server", "plugin", "--data", str(tmp_path), "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (f"{tmp_path}/plugin\n", "", 0)
    for part in re.findall(r"\{folder\}(/[\w./-]+)?", HINT):
        assert (tmp_path / f"plugin{part}").exists()

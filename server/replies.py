"""From a validated report to a tool result: structure and text with the same facts, and errors in one sentence."""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import mcp.types as types
from pydantic import BaseModel, JsonValue, ValidationError

from kernelgate.tasks.model import Frozen

SHOWN_LEVELS: Final = 2
"""Levels of objects in a published output schema: the reply and its report. The whole list must stay small."""
SHOWN_WORDS: Final = 6
"""Longer closed lists (verdicts, codes) are published as strings, for the same reason."""


def pruned(value: JsonValue) -> JsonValue:
    """Without null, empty texts and empty lists: what is not there need not be read. Zeros and false stay."""
    if isinstance(value, dict):
        kept = {name: pruned(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (None, "", [], {})}
    if isinstance(value, list):
        return [pruned(item) for item in value]
    return value


def result_of(report: Frozen | dict[str, JsonValue]) -> types.CallToolResult:
    """A tool result: several clients hand the model only the structure, others only the text, so both say the same."""
    structure = report.model_dump(mode="json") if isinstance(report, BaseModel) else report
    slim = pruned(structure)
    return types.CallToolResult(content=[types.TextContent(type="text", text=json_of(slim))], structured_content=slim)


def json_of(slim: JsonValue) -> str:
    """What is sent as text: short, and JSON whatever it holds."""
    return json.dumps(slim, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def mistake(sentence: str) -> types.CallToolResult:
    """An error result: the caller can mend it."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=sentence)], is_error=True)


def unknown_tool(name: str, known: Sequence[str]) -> str:
    """A sentence that names the closest tool and all of them."""
    return f"There is no tool {name!r}{_closest(name, known)}. The tools are: {', '.join(known)}."


def argument_mistakes(tool: str, args: type[Frozen], error: ValidationError) -> str:
    """Each wrong argument in a sentence: its name, what is wrong, what is allowed."""
    allowed = list(args.model_fields)
    said: list[str] = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False)[:8]:
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "json_invalid":
            said.append("an argument holds text that is not valid Unicode; send plain UTF-8")
        elif problem["type"] == "extra_forbidden":
            said.append(f"unknown argument {place!r}{_closest(place, allowed)}; {tool} takes: {', '.join(allowed)}")
        elif problem["type"] == "missing":
            said.append(f"argument {place!r} is missing: {_meaning(args, place)}")
        elif problem["type"] == "string_pattern_mismatch" and place.endswith("_id"):
            said.append(f"{place}: an id looks like {place[0]}1")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            said.append(f"{place}: {message}" if place else message)
    return f"{tool}: " + "; ".join(said) + "."


def _meaning(args: type[Frozen], name: str) -> str:
    field = args.model_fields.get(name)
    return (field.description if field and field.description else "required").rstrip(".")


def _closest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def input_schema(args: type[Frozen]) -> dict[str, Any]:
    """The arguments of a tool, without the titles that pydantic gives to everything: agents pay for each token.

    Without the description of the whole, too: the tool's own says it.
    """
    slim: dict[str, Any] = _without(args.model_json_schema(), {"title"})
    slim.pop("description", None)
    return slim


def output_schema(report: type[Frozen]) -> dict[str, Any]:
    """The reply of a tool as `result_of` sends it, with the types of two levels; deeper objects stay open.

    What is null or empty is left out of a reply, so only what is never empty is required, and said of the outer level.
    """
    whole = report.model_json_schema()
    slim: dict[str, Any] = _shallow(whole, whole.get("$defs", {}), SHOWN_LEVELS)
    return slim


def _shallow(node: Mapping[str, Any], definitions: Mapping[str, Any], levels: int) -> Any:
    """A schema without references, descriptions and bounds, cut off below some levels of objects."""
    if "$ref" in node:
        return _shallow(definitions[node["$ref"].rpartition("/")[2]], definitions, levels)
    if "anyOf" in node:
        # Null is never sent, so `X or null` is X.
        options = [_shallow(option, definitions, levels) for option in node["anyOf"] if option.get("type") != "null"]
        return options[0] if len(options) == 1 else {"anyOf": options}
    if "enum" in node:
        return {"enum": node["enum"]} if len(node["enum"]) <= SHOWN_WORDS else {"type": "string"}
    if node.get("type") == "array":
        return {"type": "array", "items": _shallow(node.get("items", {}), definitions, levels)}
    if node.get("type") != "object":
        return {key: node[key] for key in ("type", "const") if key in node}
    if "properties" not in node or levels == 0:
        return {"type": "object"}
    properties = {name: _shallow(value, definitions, levels - 1) for name, value in node["properties"].items()}
    outer = levels == SHOWN_LEVELS
    required = [name for name in node.get("required", ()) if outer and _always_sent(properties[name])]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _always_sent(schema: Mapping[str, Any]) -> bool:
    """Numbers, booleans and closed lists of words are never pruned."""
    return schema.get("type") in ("number", "integer", "boolean") or all(schema.get("enum", [""]))


def _without(node: Any, dropped: set[str], *, names: bool = False) -> Any:
    """A schema without some keywords; under `properties` and `$defs` the keys are names, not keywords."""
    if isinstance(node, list):
        return [_without(item, dropped) for item in cast("Sequence[Any]", node)]
    if not isinstance(node, dict):
        return node
    return {
        key: _without(value, dropped, names=not names and key in ("properties", "$defs"))
        for key, value in cast("dict[str, Any]", node).items()
        if names or key not in dropped
    }

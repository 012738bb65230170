"""Our entry into a configuration file that exists: nothing else in it changes.

What cannot be merged without doubt is refused with the reason.
"""

import json
import re
import tomllib
from typing import Any, Final, cast

SERVER_NAME: Final = "kernelgate"
"""At most 12 characters: some clients drop a tool whose server and tool names together exceed 60."""


class CannotMerge(Exception):
    """Why a file was not understood well enough to change it."""


# JSON with `mcpServers` or `servers` ----------------------------------------------------------------------------------


def merge_json(before: str, ours: str) -> str:
    """The file with our entry under the name that our text has it under; raises `CannotMerge`."""
    try:
        document = _table(json.loads(before, object_pairs_hook=_without_duplicates), "it")
    except json.JSONDecodeError as error:
        raise CannotMerge(f"it is not JSON (line {error.lineno}: {error.msg})") from error
    ((key, wanted),) = _table(json.loads(ours), "our text").items()
    servers = _table(document.get(key, {}), f"its {key}")
    if all(servers.get(name) == entry for name, entry in wanted.items()):
        return before
    indent = re.search(r"^([ \t]+)\S", before, re.MULTILINE)
    merged = {**document, key: {**servers, **wanted}}
    return json.dumps(merged, indent=indent.group(1) if indent else 2, ensure_ascii=False) + "\n"


def _table(value: object, what: str) -> dict[str, Any]:
    """The object that a JSON or TOML value has to be."""
    if not isinstance(value, dict):
        raise CannotMerge(f"{what} is not an object with names")
    return cast("dict[str, Any]", value)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a name that stands twice would silently lose its first value when written back."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise CannotMerge(f"it names {sorted({n for n in names if names.count(n) > 1})} twice in one object")
    return found


# TOML with `[mcp_servers.NAME]` ---------------------------------------------------------------------------------------


_HEADER: Final = re.compile(r"^\s*\[")
_OUR_HEADER: Final = re.compile(rf"^\s*\[\s*mcp_servers\s*\.\s*(['\"]?){SERVER_NAME}\1\s*(\.[^\]]*)?\]\s*(#.*)?$")


def merge_toml(before: str, ours: str) -> str:
    """Cut our tables out textually, append them, and check by parsing that nothing else has changed.

    Raises:
        CannotMerge: something else would change.
    """
    old = _parse_toml(before, "it is not TOML")
    wanted = tomllib.loads(ours)["mcp_servers"][SERVER_NAME]
    if _table(old.get("mcp_servers", {}), "its mcp_servers").get(SERVER_NAME) == wanted:
        return before
    kept = "\n".join(_without_our_tables(before.splitlines())).rstrip()
    after = f"{kept}\n\n{ours}" if kept else ours
    refusal = f"its entry for {SERVER_NAME} is written in a way that cannot be replaced line by line"
    new = _parse_toml(after, refusal)
    if new["mcp_servers"].get(SERVER_NAME) != wanted or _rest(new) != _rest(old):
        raise CannotMerge(refusal)
    return after


def _parse_toml(text: str, refusal: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CannotMerge(f"{refusal} ({error})") from error


def _rest(document: dict[str, Any]) -> dict[str, Any]:
    """The document without our entry; no table of servers and an empty one are the same."""
    servers = _table(document.get("mcp_servers", {}), "its mcp_servers")
    others = {name: entry for name, entry in servers.items() if name != SERVER_NAME}
    return {**document, "mcp_servers": others}


def _without_our_tables(lines: list[str]) -> list[str]:
    kept: list[str] = []
    cut: list[str] = []
    ours = False
    for line in lines:
        if _HEADER.match(line):
            # Comments and blank lines right above the next header belong to that one.
            kept += _trailing_remarks(cut)
            cut = []
            ours = _OUR_HEADER.match(line) is not None
        (cut if ours else kept).append(line)
    return kept + _trailing_remarks(cut)


def _trailing_remarks(lines: list[str]) -> list[str]:
    start = len(lines)
    while start and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#")):
        start -= 1
    return lines[start:]

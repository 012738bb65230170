"""Reading a stream: JSON lines, one candidate a line, each error one sentence with the number of its line."""

import json
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from kernelgate.budget.errors import one_line
from kernelgate.budget.ladder.model import Line, Stream
from kernelgate.tasks.model import ENTRY_FILE, Candidate

MOST_LINES: Final = 100_000
"""A file of more is no stream of candidates: each costs seconds of a device."""
MOST_SHOWN: Final = 80
"""Characters of somebody's text that an error repeats."""


class BadStream(ValueError):
    """A file that is not a stream: one sentence, with the file and the number of the line."""


def read_stream(path: Path, task: str | None = None) -> Stream:
    """A stream of a file, named like the file.

    Args:
        path: JSON lines in UTF-8; `{"id": …, "parent": …, "source": …, "note": …}`, the last line too.
        task: for which task the candidates are; default: the stem of the file's name.

    Raises:
        BadStream: the file cannot be read, or a line is wrong.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")  # some editors put a mark in front
    except OSError as error:
        raise BadStream(f"{path}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise BadStream(f"{path.name}, line {number}: not UTF-8 text.") from None
    return parse_stream(text, path.name, task or path.stem)


def parse_stream(text: str, name: str, task: str) -> Stream:
    """A stream of its text; lines of blanks are passed over. Raises `BadStream`."""
    lines: list[Line] = []
    seen: dict[str, int] = {}
    for number, written in enumerate(text.split("\n"), 1):
        if not written.strip():
            continue
        try:
            line = _line(written)
            _fits(line, seen)
            if len(lines) == MOST_LINES:
                raise BadStream(f"more than {MOST_LINES:,} candidates; split the file")  # noqa: TRY301 -- told with its line
        except BadStream as error:
            raise BadStream(f"{name}, line {number}: {error}.") from None
        seen[line.id] = number
        lines.append(line)
    if not lines:
        raise BadStream(f"{name} is empty: a stream has one candidate a line, as JSON with id and source.")
    own = name.removesuffix(".jsonl")
    if not own.strip("."):  # its folder and its plot are named so
        raise BadStream(f"{name} gives its stream no name: rename the file to NAME.jsonl.")
    return Stream(name=own, task=task, lines=tuple(lines))


def _line(written: str) -> Line:
    try:
        fields = json.loads(written)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise BadStream(f"not JSON ({one_line(reason)})") from None
    if not isinstance(fields, dict):
        raise BadStream("not a JSON object with id and source")
    try:
        return Line.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadStream(_told(str(first["loc"][0]), first["type"], first["msg"])) from None


def _told(field: str, kind: str, message: str) -> str:
    name = one_line(field)[:MOST_SHOWN]
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"unknown field {name!r}; a line has {', '.join(Line.model_fields)}"
    return f"{name}: {one_line(message)}"


def _fits(line: Line, seen: dict[str, int]) -> None:
    shown = one_line(line.id)[:MOST_SHOWN]
    if line.id in seen:
        raise BadStream(f"id {shown!r} is that of line {seen[line.id]} too")
    if line.parent is not None and line.parent not in seen:
        raise BadStream(f"parent {one_line(line.parent)[:MOST_SHOWN]!r} of {shown!r} is the id of no earlier line")
    try:
        Candidate(files={ENTRY_FILE: line.source})
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise BadStream(f"source of {shown!r}: {reason}") from None

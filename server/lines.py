"""The lines of a stdio client, read strictly: what is no message is answered, never dropped or mended in silence."""

import json
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from fcntl import F_DUPFD_CLOEXEC, fcntl
from types import NoneType
from typing import Any, BinaryIO, Final, cast

import anyio
import mcp.types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from kernelgate.server import replies

FIRST_PRIVATE_FD: Final = 3
"""Above the standard streams."""
ID: Final = re.compile(r'"id"\s*:\s*(-?\d{1,15}(?![\d.eE])|"[^"\\]{0,200}")')
"""A request's id in a text that is no JSON: the first thing that looks like one."""
LONE_SURROGATE: Final = (
    "Arguments hold half of a surrogate pair (an escape like \\ud800 without its other half): such a source is not "
    "valid UTF-8. Send whole characters."
)
EXAMPLE: Final = '{"name": "get_task", "arguments": {"task": "softmax"}}'
KINDS: Final[dict[type[object], str]] = {
    dict: "an object", list: "a list", str: "text", bool: "a truth value", NoneType: "missing or null",
}  # fmt: skip
Answer = Callable[[SessionMessage], Awaitable[None]]


class Lines:
    """The good lines of a stream, as text; each bad one is answered. Iterated by the SDK's transport."""

    def __init__(self, source: BinaryIO, ended: Callable[[], None]) -> None:
        self._source, self._ended = anyio.wrap_file(source), ended
        self._answer: Answer | None = None
        self._answerable = anyio.Event()

    def answer_through(self, answer: Answer) -> None:
        """Where answers to bad lines go; nothing is read before it is known."""
        self._answer = answer
        self._answerable.set()

    async def __aiter__(self) -> AsyncGenerator[str]:
        """Good lines until the end of the stream, which is told."""
        await self._answerable.wait()
        assert self._answer is not None
        async for line in self._source:
            if not line.strip():
                continue
            found = refusal(line)
            if found is None:
                yield line.decode("utf-8")
            else:
                await self._answer(SessionMessage(found))
        self._ended()


class Replies:
    """The other direction. A client that reads no more has left: nothing is written then, and nothing fails."""

    def __init__(self, target: BinaryIO, client_left: Callable[[], None]) -> None:
        self._target, self._client_left = anyio.wrap_file(target), client_left

    async def write(self, text: str) -> None:
        """Called by the SDK's transport with one line."""
        await self._or_left(lambda: self._target.write(text.encode("utf-8")))

    async def flush(self) -> None:
        """Called behind each line."""
        await self._or_left(self._target.flush)

    async def _or_left(self, write: Callable[[], Awaitable[object]]) -> None:
        try:
            await write()
        except BrokenPipeError:
            self._client_left()
            await anyio.sleep_forever()  # until the transport is cancelled


@asynccontextmanager
async def strict_stdio(
    client_left: Callable[[], None], input_ended: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The SDK's transport over this process's stdin and stdout, with strict lines.

    Children find stdin empty, and what they print goes to stderr. `client_left` is told that nobody reads any more,
    `input_ended` that nothing more will come.
    """
    incoming = _taken(0, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    outgoing = _taken(1, os.dup(2))
    # Not closed with the file: a thread may still block on it when the transport is left.
    lines = Lines(os.fdopen(incoming, "rb", closefd=False), input_ended)
    answers = Replies(os.fdopen(outgoing, "wb", closefd=False), client_left)
    stdin, stdout = cast("anyio.AsyncFile[str]", lines), cast("anyio.AsyncFile[str]", answers)
    async with stdio_server(stdin=stdin, stdout=stdout) as (reading, writing):
        lines.answer_through(writing.send)
        yield reading, writing


def _taken(standard: int, instead: int) -> int:
    """A private copy of a standard stream, which leads elsewhere from now on; closes `instead`."""
    private = fcntl(standard, F_DUPFD_CLOEXEC, FIRST_PRIVATE_FD)
    os.dup2(instead, standard)
    os.close(instead)
    return private


def refusal(line: bytes) -> types.JSONRPCError | types.JSONRPCResponse | None:
    """The answer to a line that is no message; None for a good line."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        why = f"The line is not valid UTF-8 (byte 0x{line[error.start]:02x} at position {error.start}); send UTF-8."
        return _error(types.PARSE_ERROR, why, _id_in(line.decode("utf-8", "replace")))
    try:
        message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] != "json_invalid":
            why = "The line is JSON, but no JSON-RPC 2.0 message: it needs jsonrpc, method and, for an answer, an id."
            return _error(types.INVALID_REQUEST, why, _id_in(text))
        return _unparsed(text, str(first.get("ctx", {}).get("error", "invalid JSON")))
    if isinstance(message, types.JSONRPCRequest) and message.method == "tools/call":
        return _misshapen(message)
    return None


def _misshapen(call: types.JSONRPCRequest) -> types.JSONRPCError | None:
    """What is wrong with the form of a call of a tool, which the SDK refuses without saying it; None if nothing is."""
    params = call.params or {}
    wrong: list[str] = []
    if not isinstance(params.get("name"), str):
        wrong.append(f"name must be the name of a tool, as text, and is {_kind(params.get('name'))}")
    if not isinstance(params.get("arguments"), dict | None):
        wrong.append(f"arguments must be an object and is {_kind(params['arguments'])}")
    if not wrong:
        return None
    return _error(types.INVALID_PARAMS, f"tools/call: {'; '.join(wrong)}. For example: {EXAMPLE}.", call.id)


def _kind(value: object) -> str:
    """What a JSON value is, in a word."""
    return KINDS.get(type(value), "a number")


def _unparsed(text: str, why: str) -> types.JSONRPCError | types.JSONRPCResponse:
    message = _tolerantly(text)
    if message is None or not _has_lone_surrogate(message):
        sentence = f"The line cannot be read as JSON: {why}. Send one JSON-RPC message per line."
        return _error(types.PARSE_ERROR, sentence, _id_in(text))
    number = _id_in(text)
    if message.get("method") == "tools/call" and number is not None:
        result = replies.mistake(LONE_SURROGATE).model_dump(mode="json", by_alias=True, exclude_none=True)
        return types.JSONRPCResponse(jsonrpc="2.0", id=number, result=result)
    return _error(types.PARSE_ERROR, LONE_SURROGATE, _id_in(text))


def _tolerantly(text: str) -> dict[str, Any] | None:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _has_lone_surrogate(value: object) -> bool:
    # Escapes in pairs became one character when they were read: what is left over has no other half.
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _id_in(text: str) -> int | str | None:
    message = _tolerantly(text)
    if message is not None and type(message.get("id")) in (int, str) and not _has_lone_surrogate(message["id"]):
        number: int | str = message["id"]
        return number
    found = ID.search(text)
    return None if found is None else json.loads(found[1], strict=False)


def _error(code: int, sentence: str, number: int | str | None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=sentence))

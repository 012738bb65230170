"""A model on loopback that says what it was told to say: what a client does with a model's tool calls, without one.

It speaks as much of the Messages API as Claude Code asks for, and of Gemini's as Gemini CLI does: each turn is one
stream of events.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from node_box import Done, Seen

ENOUGH: Final = 50
"""Requests; a client that asks on and on is answered no more."""
DONE: Final = "done"
ASKED: Final = (
    ("list_tasks", {"query": "soft"}),
    ("get_task", {"task": "softmax"}),
    ("start_run", {"task": "softmax"}),
)
"""What a canned model calls."""


@dataclass(frozen=True)
class Said:
    """One turn of the model: a tool call, or without a name its last words."""

    number: int
    name: str = ""
    arguments: tuple[tuple[str, str], ...] = ()


class CannedModel(ThreadingHTTPServer):
    """Calls the given tools, one a turn, and then says that it is done."""

    daemon_threads = True

    def __init__(self, calls: Sequence[tuple[str, dict[str, str]]]) -> None:
        super().__init__(("127.0.0.1", 0), _Turn)
        self.calls = list(calls)
        self.handed: list[str] = []
        """What the client handed the model of each tool's result."""
        self.requests = 0

    @property
    def url(self) -> str:
        """Where the client finds it."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_said(self, results: list[str], *, with_tools: bool) -> Said:
        """What the model says where it has been handed these results so far."""
        if len(results) > len(self.handed):
            self.handed = results
        # Side questions (a title for the session) come without tools.
        if not with_tools or len(results) >= len(self.calls):
            return Said(len(results))
        name, arguments = self.calls[len(results)]
        return Said(len(results), name, tuple(arguments.items()))


class _Turn(BaseHTTPRequestHandler):
    server: CannedModel

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests += 1
        if self.server.requests > ENOUGH:
            self.send_error(429)
        elif self.path.startswith("/v1/messages"):
            said = self.server.next_said(_results_of_messages(asked), with_tools=bool(asked.get("tools")))
            self._stream([f"event: {one['type']}\ndata: {json.dumps(one)}" for one in _messages(said, asked["model"])])
        elif ":streamGenerateContent" in self.path:
            said = self.server.next_said(_results_of_contents(asked), with_tools=bool(asked.get("tools")))
            self._stream([f"data: {json.dumps(_content(said))}"])
        else:
            self.send_error(404)

    def _stream(self, events: list[str]) -> None:
        body = "".join(f"{event}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def _results_of_messages(asked: dict[str, Any]) -> list[str]:
    parts = [part for message in asked["messages"] for part in message["content"] if isinstance(part, dict)]
    contents = [part["content"] for part in parts if part.get("type") == "tool_result"]
    return [text if isinstance(text, str) else "".join(part.get("text", "") for part in text) for text in contents]


def _messages(said: Said, model: str) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta, why = {"type": "text_delta", "text": DONE}, "end_turn"
    if said.name:
        block = {"type": "tool_use", "id": f"toolu_{said.number}", "name": said.name, "input": {}}
        delta, why = {"type": "input_json_delta", "partial_json": json.dumps(dict(said.arguments))}, "tool_use"
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _results_of_contents(asked: dict[str, Any]) -> list[str]:
    parts = [part for content in asked["contents"] for part in content["parts"]]
    return [str(part["functionResponse"]["response"].get("output")) for part in parts if "functionResponse" in part]


def _content(said: Said) -> dict[str, Any]:
    part = {"functionCall": {"name": said.name, "args": dict(said.arguments)}} if said.name else {"text": DONE}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    turn = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [turn], "usageMetadata": usage}


@contextmanager
def canned_model(*calls: tuple[str, dict[str, str]]) -> Iterator[CannedModel]:
    """One that listens."""
    model = CannedModel(calls)
    thread = threading.Thread(target=model.serve_forever, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.shutdown()
        model.server_close()


def seen_in_session(client: str, version: str, model: CannedModel, done: Done) -> Iterator[Seen]:
    """Of each call of `ASKED`, what the client handed its model; or how the session ended too early."""
    for (tool, _), handed in zip(ASKED, model.handed, strict=False):
        inner = handed[handed.find("{") : handed.rfind("}") + 1]
        try:
            ok = json.loads(inner)["status"] == "ok"
        except (json.JSONDecodeError, KeyError):
            ok = False
        said = f"its model is handed the whole reply as JSON, {len(handed)} characters" if ok else handed[:300]
        yield Seen(client, version, f"a session with a canned model: {tool}", ok, said)
    if len(model.handed) < len(ASKED) or done.status != 0:
        yield Seen(client, version, "a session with a canned model", False, done.text[-300:])

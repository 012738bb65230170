"""The server as a process: its start, its manners, and what it leaves behind when it goes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.owner import is_alive

PARSE_ERROR = -32700
SOFTMAX = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {body}\n"
HANGS = """
import os, time
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        deadline = time.monotonic() + 60
        while type(x).__name__ == "Tensor" and time.monotonic() < deadline:
            pass
        return x
"""


def command(data_dir: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "kernelgate.server", "serve", "--data", str(data_dir), "--device", "cpu", *more]


def connect(data_dir: Path, mode: str = "auto") -> Client:
    line = command(data_dir)
    return Client(StdioServerParameters(command=line[0], args=line[1:]), mode=mode)


@contextmanager
def started(data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is certainly gone at the end."""
    with subprocess.Popen(
        command(data_dir), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    ) as server:
        try:
            yield server
        finally:
            server.kill()


def ask(server: subprocess.Popen[bytes], number: int, method: str, **params: Any) -> None:
    assert server.stdin is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()


def answer(server: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert server.stdout is not None
    while True:
        message: dict[str, Any] = json.loads(server.stdout.readline())
        if "id" in message:
            return message


def greet(server: subprocess.Popen[bytes]) -> None:
    ask(
        server, 0, "initialize", protocolVersion="2025-06-18", capabilities={},
        clientInfo={"name": "rough", "version": "1"},
    )  # fmt: skip
    answer(server)
    assert server.stdin is not None
    server.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    server.stdin.flush()


def call(server: subprocess.Popen[bytes], number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    ask(server, number, "tools/call", name=tool, arguments=arguments)
    result = answer(server)["result"]
    structure: dict[str, Any] = result.get("structuredContent") or {}
    return structure


def descendants(pid: int) -> set[int]:
    """Processes below one, by their parents."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def gone(pids: set[int], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        os.sched_yield()
    return False


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_over_stdio_gets_its_answers_in_both_eras(tmp_path: Path, mode: str) -> None:
    async with connect(tmp_path, mode) as client:
        assert len((await client.list_tools()).tools) == 12
        reply = await client.call_tool("list_tasks", {"query": "soft"})
        assert reply.structured_content["tasks"][0]["name"] == "softmax"


def test_nothing_but_protocol_is_on_stdout_and_a_broken_line_breaks_nothing(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        greet(server)
        assert server.stdin is not None
        server.stdin.write(b"this is not JSON\n")
        server.stdin.flush()
        assert answer(server)["error"]["code"] == PARSE_ERROR
        assert call(server, 1, "list_tasks")["total"] == 6
        server.stdin.close()
        assert server.stdout is not None
        assert [json.loads(line)["jsonrpc"] for line in server.stdout.read().splitlines()] == []
        assert server.wait(timeout=10) == 0


def arguments(text: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"list_tasks","arguments":{"query":%s}}}' % (
        text.encode("latin-1")
    )


LISTED = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"list_tasks","arguments":[1]}}'


@pytest.mark.parametrize(
    ("line", "number", "words"),
    [
        (arguments('"\xff"'), 7, "not valid UTF-8 (byte 0xff"),
        (arguments("[" * 260 + "]" * 260), 7, "recursion limit"),
        (arguments("9" * 5000), 7, "number out of range"),
        (arguments('"')[:-3], 7, "cannot be read as JSON"),
        (b'{"id": "a-b", nonsense', "a-b", "cannot be read as JSON"),
        (b"{}", None, "no JSON-RPC 2.0 message"),
        (LISTED, 7, "arguments must be an object and is a list"),
    ],
    ids=["raw-byte", "deep", "long-integer", "cut-off", "text-id", "no-message", "no-object"],
)
def test_a_line_that_is_no_message_is_answered_under_its_id_and_the_next_one_is_served(
    tmp_path: Path, line: bytes, number: int | str | None, words: str
) -> None:
    with started(tmp_path) as server:
        greet(server)
        assert server.stdin is not None
        server.stdin.write(line + b"\n")
        server.stdin.flush()
        refused = answer(server)
        assert refused["id"] == number
        assert words in refused["error"]["message"]
        assert call(server, 8, "list_tasks")["total"] == 6


def test_half_a_surrogate_pair_in_a_call_is_that_calls_error_and_a_whole_pair_is_text(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        greet(server)
        assert server.stdin is not None
        server.stdin.write(arguments('"\\ud800"') + b"\n" + arguments('"\\ud83d\\ude00"') + b"\n")
        server.stdin.flush()
        half, whole = answer(server), answer(server)
        assert half["id"] == 7
        assert half["result"]["isError"] is True
        assert "not valid UTF-8" in half["result"]["content"][0]["text"]
        assert not whole["result"].get("isError"), whole


@pytest.mark.parametrize(
    "how",
    [
        *(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGTERM, signal.SIGINT)),
        signal.SIGKILL,
        None,
    ],
    ids=lambda how: str(how),
)
def test_a_server_that_ends_takes_its_children_along_and_its_hold_is_released(
    tmp_path: Path, how: signal.Signals | None
) -> None:
    with started(tmp_path) as server:
        greet(server)
        run_id = call(server, 1, "start_run", task="softmax")["run"]["run_id"]
        reply = call(server, 2, "compile", run_id=run_id, source=HANGS, up_to="check_correctness", wait_s=3)
        assert reply["status"] == "running"
        children = descendants(server.pid)
        assert children
        assert server.stdin is not None
        if how is None:
            server.stdin.close()
        else:
            server.send_signal(how)
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped: its parent may be busy
        assert gone(children, within_s=5), "children are left"
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            ledger.sweep(is_alive)
            assert ledger.open_holds(run_id) == ()
            assert ledger.job(reply["job_id"]).state in ("lost", "cancelled")
            assert ledger.purse(run_id).open.device_s == 0
    assert audit(tmp_path / "ledger.db").ok


def test_a_client_that_reads_no_more_has_left_and_that_is_no_fault(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    ) as server:
        try:
            greet(server)
            assert server.stdout is not None
            server.stdout.close()
            ask(server, 1, "tools/list")
            assert server.stderr is not None
            said = server.stderr.read().decode()
            assert server.wait(10) == 0
        finally:
            server.kill()
    assert "Traceback" not in said
    assert said == "", "a client that leaves is none of anybody's business"
    assert "the client reads no more" in (tmp_path / "server.log").read_text()


@pytest.mark.parametrize("line", [{"method": "tools/list"}, {"broken": True}], ids=["requests", "mistakes"])
def test_a_client_that_closes_our_input_with_the_pipe_full_of_answers_is_not_waited_for(
    tmp_path: Path, line: dict[str, Any]
) -> None:
    with started(tmp_path) as server:
        greet(server)
        assert server.stdin is not None
        assert server.stdout is not None
        for number in range(200):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **line}).encode() + b"\n")
        server.stdin.close()
        assert server.wait(timeout=8) == 0


def test_two_servers_share_one_book_and_another_one_goes_on_with_the_run(tmp_path: Path) -> None:
    with started(tmp_path) as first, started(tmp_path) as second:
        greet(first)
        greet(second)
        run_id = call(first, 1, "start_run", task="softmax")["run"]["run_id"]
        source = SOFTMAX.format(body="torch.softmax(x, dim=-1)")
        checked = call(first, 2, "compile", run_id=run_id, source=source, up_to="check_correctness", wait_s=60)
        assert checked["verdict"] == "correct"
        first.kill()
        timed = call(second, 1, "quick_time", candidate_id=checked["candidate_id"], wait_s=60)
        assert timed["status"] == "ok"
        assert timed["remaining"]["check_calls"] == 99
    assert audit(tmp_path / "ledger.db").ok


def serve_and_fail(data_dir: Path) -> str:
    done = subprocess.run(command(data_dir), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    text = done.stderr.decode()
    assert "Traceback" not in text
    assert text.count("\n") == 1, text
    return text


def test_a_ledger_that_is_no_ledger_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("this is a shopping list, not a database, and long enough to be read as one")
    assert "not a SQLite database" in serve_and_fail(tmp_path)


@pytest.mark.parametrize("name", ["ledger.db", "server.log"])
def test_a_pipe_in_the_place_of_a_file_is_one_clear_sentence_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert "is a pipe" in serve_and_fail(tmp_path)


def test_a_ledger_that_is_a_link_to_nowhere_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").symlink_to(tmp_path / "gone.db")
    assert "gone.db, which is not there" in serve_and_fail(tmp_path)


def test_a_ledger_of_a_newer_version_is_left_alone_with_one_clear_sentence(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db").close()
    with sqlite3.connect(tmp_path / "ledger.db") as book:
        book.execute("INSERT INTO schema_version VALUES (99, 'tomorrow')")
    book.close()
    assert "schema 99" in serve_and_fail(tmp_path)


def test_a_data_folder_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "--data" in serve_and_fail(tmp_path / "file" / "data")


def test_a_task_folder_that_is_not_there_is_one_clear_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, "--tasks", str(tmp_path / "absent")),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no task folder" in done.stderr.decode()


def test_a_log_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "server.log").mkdir()
    assert "cannot be used" in serve_and_fail(tmp_path)

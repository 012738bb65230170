"""One account's share of the HTTP server: what is more is told to come again, and other accounts go on."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from http_server import HEADERS, HttpServer, call, client_of, rpc, serving
from mcp.shared.exceptions import MCPError
from near_server import HOST, near

from kernelgate.server import shares
from kernelgate.server.shares import COME_AGAIN_S, IDLE_S, MOST_HELD, MOST_SESSIONS, Refusal, Session, room_for_session
from kernelgate.server.tokens import Tokens

INITIALIZE = rpc("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"})
NOW_S = 1000.0
FEW, LONG_S = 20, 3600.0
"""An account's share of sessions on the server of these tests, and how long none of them is silent for long enough."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shares")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[HttpServer]:
    plant = f"from kernelgate.server import shares; shares.MOST_SESSIONS = {FEW}; shares.IDLE_S = {LONG_S}"
    with serving(folder, plant=plant) as found:
        yield found


def of(server: HttpServer, folder: Path, account: str) -> dict[str, str]:
    return {**HEADERS, "Authorization": f"Bearer {Tokens(folder).add(account, server.url)[1]}"}


def sessions(count: int, *, silent_s: float = 0.0, held: int = 0) -> dict[str, Session]:
    return {f"s{n}": Session("alice", {}, held, NOW_S - silent_s + n) for n in range(count)}


def test_below_its_share_an_account_opens_sessions() -> None:
    assert room_for_session(sessions(MOST_SESSIONS - 2), 1, NOW_S) is None


def test_sessions_that_are_about_to_open_count_too() -> None:
    assert isinstance(room_for_session(sessions(MOST_SESSIONS - 1), 1, NOW_S), Refusal)


def test_at_its_share_the_session_that_was_silent_for_longest_goes_first() -> None:
    assert room_for_session(sessions(MOST_SESSIONS, silent_s=IDLE_S), 0, NOW_S) == "s0"


def test_a_session_that_holds_a_stream_is_not_silent() -> None:
    refusal = room_for_session(sessions(MOST_SESSIONS, silent_s=2 * IDLE_S, held=1), 0, NOW_S)
    assert isinstance(refusal, Refusal)
    assert refusal.again_s == COME_AGAIN_S


def test_a_refusal_says_when_the_first_session_has_been_silent_for_long_enough() -> None:
    refusal = room_for_session(sessions(MOST_SESSIONS, silent_s=IDLE_S - 7.5), 0, NOW_S)
    assert isinstance(refusal, Refusal)
    assert refusal.again_s == 8


@pytest.mark.anyio
async def test_an_account_with_all_its_sessions_is_told_to_come_again_and_another_opens_one(
    server: HttpServer, folder: Path
) -> None:
    secret = Tokens(folder).add("hoarder", server.url)[1]
    hoarder, other = {**HEADERS, "Authorization": f"Bearer {secret}"}, of(server, folder, "modest")
    with httpx2.Client(timeout=30.0) as http:
        opened = [http.post(server.url, json=INITIALIZE, headers=hoarder) for _ in range(FEW)]
        assert {got.status_code for got in opened} == {200}
        refused = http.post(server.url, json=INITIALIZE, headers=hoarder)
        assert refused.status_code == 429
        assert 0 < int(refused.headers["Retry-After"]) <= LONG_S
        why = refused.json()["error"]["message"]
        assert why.startswith(f"{FEW} sessions of this account are open")
        told = pytest.RaisesExc(MCPError, match="sessions of this account are open")
        with pytest.RaisesGroup(told, flatten_subgroups=True, allow_unwrapped=True):
            async with client_of(server.url, secret, mode="legacy"):
                pass
        assert http.post(server.url, json=INITIALIZE, headers=other).status_code == 200
        async with client_of(server.url, secret) as client:
            assert "tasks" in await call(client, "list_tasks"), "the newer version needs no session"
        session = {"Mcp-Session-Id": opened[0].headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-06-18"}
        assert http.post(server.url, json=rpc("tools/list", 2), headers={**hoarder, **session}).status_code == 200
        assert http.delete(server.url, headers={**hoarder, **session}).status_code == 200
        assert http.post(server.url, json=INITIALIZE, headers=hoarder).status_code == 200


def test_another_account_that_names_a_session_takes_nothing_off_its_owners_count(
    server: HttpServer, folder: Path
) -> None:
    owner, stranger = of(server, folder, "owner"), of(server, folder, "stranger")
    with httpx2.Client(timeout=30.0) as http:
        opened = [http.post(server.url, json=INITIALIZE, headers=owner) for _ in range(FEW)]
        theirs = {**stranger, "Mcp-Session-Id": opened[0].headers["Mcp-Session-Id"]}
        assert http.delete(server.url, headers=theirs).status_code == 404
        assert http.post(server.url, json=INITIALIZE, headers=owner).status_code == 429


def test_an_account_that_holds_all_its_requests_is_told_to_come_again_and_another_is_served(
    server: HttpServer, folder: Path
) -> None:
    greedy, other, place = of(server, folder, "greedy"), of(server, folder, "patient"), urlsplit(server.url)
    body = json.dumps(INITIALIZE)
    probe = {**greedy, "MCP-Protocol-Version": "2026-07-28"}  # which begins no session
    lines = {**probe, "Host": place.netloc, "Content-Length": str(len(body))}
    half = "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_HELD):
            sock = socket.create_connection((place.hostname or "", place.port or 0), timeout=10)
            stack.enter_context(sock).sendall(half.encode())
        while (refused := server.ask(json={}, headers=probe)).status_code == 400:
            pass  # some of them are still being read
        assert int(refused.headers["Retry-After"]) == COME_AGAIN_S
        assert refused.json()["error"]["message"].startswith(f"{MOST_HELD} requests of this account are not answered")
        assert server.ask(json=INITIALIZE, headers=other).status_code == 200
        assert server.ask(json=INITIALIZE, headers=HEADERS).status_code == 200, "who sends no token is another account"
    while (again := server.ask(json={}, headers=probe)).status_code == 429:
        pass  # they are being closed
    assert again.status_code == 400, "an empty request, which is read again"


@pytest.fixture
async def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx2.AsyncClient]:
    """The whole application in this process, in which two sessions are an account's share and a moment is long."""
    monkeypatch.setattr(shares, "MOST_SESSIONS", 2)
    monkeypatch.setattr(shares, "IDLE_S", 0.0)
    async with near(tmp_path) as transport, httpx2.AsyncClient(transport=transport, base_url=HOST) as http:
        yield http


@pytest.mark.anyio
async def test_a_silent_session_ends_when_its_account_wants_another_one(small: httpx2.AsyncClient) -> None:
    names = [(await small.post("/mcp", json=INITIALIZE, headers=HEADERS)).headers["Mcp-Session-Id"] for _ in range(3)]
    asked = [
        await small.post("/mcp", json=rpc("tools/list", 2), headers={**HEADERS, "Mcp-Session-Id": name})
        for name in names
    ]
    assert [got.status_code for got in asked] == [404, 200, 200]

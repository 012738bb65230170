"""The server over HTTP: who gets in, whose runs they see, what is refused, and how it leaves."""

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import connecting
import httpx2
import pytest
from http_server import HEADERS, HttpServer, call, client_of, rpc, serving
from live_server import forward
from mcp.client.subscriptions import ResourcesListChanged, SubscriptionLost

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.serve_http import listening, place_of
from kernelgate.server.tokens import Tokens
from kernelgate.server.work import Workshop

FUSED = forward("return torch.softmax(x, dim=-1)")
SLOW = forward("import time\ntime.sleep(0.5)\nreturn torch.softmax(x, dim=-1)")
INITIALIZE = rpc("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("http")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[HttpServer]:
    with serving(folder) as found:
        yield found


def token(server: HttpServer, folder: Path, account: str) -> str:
    return Tokens(folder).add(account, server.url)[1]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_climbs_over_http_in_both_eras_and_is_told_how_far_it_is(
    server: HttpServer, folder: Path, mode: str
) -> None:
    stages: list[str | None] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        stages.append(message)

    account = f"climber-{mode}"
    async with client_of(server.url, token(server, folder, account), mode) as client:
        assert len((await client.list_tools()).tools) == 12
        run_id = (await call(client, "start_run", task="softmax"))["run"]["run_id"]
        arguments = {"run_id": run_id, "source": FUSED, "up_to": "check_correctness", "wait_s": 60}
        result = await client.call_tool("compile", arguments, progress_callback=heard)
    reply: Any = result.structured_content
    assert reply["verdict"] == "correct"
    assert any("check" in (stage or "") or "compile" in (stage or "") for stage in stages), stages
    with Ledger.open(folder / "ledger.db") as ledger:
        assert ledger.run(run_id).account_id == account


@pytest.mark.anyio
async def test_an_account_sees_its_own_runs_alone_and_without_a_token_one_is_the_local_account(
    server: HttpServer, folder: Path
) -> None:
    async with client_of(server.url, token(server, folder, "alice")) as alice:
        run_id = (await call(alice, "start_run", task="softmax"))["run"]["run_id"]
        assert (await call(alice, "get_budget", run_id=run_id))["run"]["run_id"] == run_id
    for secret in (token(server, folder, "bob"), ""):
        async with client_of(server.url, secret) as other:
            assert "unknown run" in (await call(other, "get_budget", run_id=run_id))["error"]
    async with client_of(server.url) as nobody:
        own = (await call(nobody, "start_run", task="softmax"))["run"]["run_id"]
    with Ledger.open(folder / "ledger.db") as ledger:
        assert (ledger.run(run_id).account_id, ledger.run(own).account_id) == ("alice", "local")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("Bearer wrong", "this token is not known here"),
        ("Bearer", "this server needs a token"),
        ("Basic YTpi", "this server needs a token"),
        ("bearer\twrong", "this server needs a token"),
    ],
)
def test_a_token_that_opens_nothing_is_refused_with_the_reason(server: HttpServer, header: str, said: str) -> None:
    got = server.ask(json=INITIALIZE, headers={**HEADERS, "Authorization": header})
    assert got.status_code == 401
    assert said in got.json()["error_description"]
    assert got.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.anyio
async def test_a_session_is_nobody_elses_although_its_id_is_known(server: HttpServer, folder: Path) -> None:
    alice = {**HEADERS, "Authorization": f"Bearer {token(server, folder, 'alice')}"}
    bob = {**HEADERS, "Authorization": f"Bearer {token(server, folder, 'bob')}"}
    begun = server.ask(json=INITIALIZE, headers=alice)
    session = {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-06-18"}
    asked = rpc("tools/list", 2)
    assert server.ask(json=asked, headers={**alice, **session}).status_code == 200
    assert server.ask(json=asked, headers={**bob, **session}).status_code in (401, 403, 404)
    assert server.ask(json=asked, headers={**HEADERS, **session}).status_code in (401, 403, 404)


@pytest.mark.anyio
async def test_a_stream_of_a_token_that_is_removed_ends_and_that_of_another_goes_on(
    server: HttpServer, folder: Path
) -> None:
    leaving, secret = Tokens(folder).add("erin", server.url)
    async with (
        client_of(server.url, secret) as client,
        client_of(server.url, token(server, folder, "erin")) as other,
        client.listen(resources_list_changed=True) as ends,
        other.listen(resources_list_changed=True) as goes_on,
    ):
        Tokens(folder).remove(leaving.token_id)
        with anyio.fail_after(30), contextlib.suppress(SubscriptionLost):
            async for _ in ends:
                pass
        with Ledger.open(folder / "ledger.db") as ledger:
            ledger.record_account("erin")
            ledger.start_run(connecting.TASK, connecting.run_request(account="erin"))
        with anyio.fail_after(30):
            assert isinstance(await anext(aiter(goes_on)), ResourcesListChanged)


def test_a_token_file_that_cannot_be_read_is_told_without_its_place(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        (tmp_path / "tokens.json").write_text("nonsense")
        got = server.ask(json=INITIALIZE, headers={**HEADERS, "Authorization": "Bearer x"})
        assert got.status_code == 401
        assert "cannot read its tokens now" in got.text
        assert str(tmp_path) not in got.text
        assert str(tmp_path / "tokens.json") in (tmp_path / "server.log").read_text("utf-8")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 400),
    ],
)
def test_a_page_in_a_browser_does_not_get_in(server: HttpServer, headers: dict[str, str], status: int) -> None:
    assert server.ask(json=INITIALIZE, headers={**HEADERS, **headers}).status_code == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400), (b"[]", 400), (b"\xff\xfe", 400), (b"null", 400), (b"[" * 100_000, 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": "' + b"x" * (10 << 20) + b'"}', 413),
    ],
    ids=["broken", "list", "no UTF-8", "null", "deep", "10 MB"],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_the_server_goes_on(server: HttpServer, body: bytes, status: int) -> None:
    assert server.ask(content=body, headers=HEADERS).status_code == status
    assert server.ask("GET", "/healthz").json()["status"] == "ok"


def test_methods_that_there_are_not_are_errors_of_the_protocol(server: HttpServer) -> None:
    begun = server.ask(json=INITIALIZE, headers=HEADERS)
    session = {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-06-18"}
    told = server.ask(json=rpc("tools/burn", 2), headers={**HEADERS, **session}).text
    assert json.loads(told.partition("data: ")[2].splitlines()[0])["error"]["code"] == -32601
    assert server.ask("PUT", json={}, headers=HEADERS).status_code == 405
    assert server.ask("GET", "/../etc/passwd").status_code == 404


@pytest.mark.anyio
async def test_clients_that_never_read_keep_nobody_waiting(server: HttpServer) -> None:
    place = urlsplit(server.url)
    body = json.dumps(INITIALIZE).encode()
    request = (
        b"POST /mcp HTTP/1.1\r\nHost: " + place.netloc.encode() + b"\r\nAccept: application/json, text/event-stream\r\n"
        b"Content-Type: application/json\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )
    deaf = [socket.create_connection((place.hostname or "", place.port or 0), timeout=5) for _ in range(50)]
    try:
        for sock in deaf:
            sock.sendall(request * 4)
        async with client_of(server.url) as client:
            assert "tasks" in await call(client, "list_tasks")
    finally:
        for sock in deaf:
            sock.close()


def test_more_connections_than_a_process_has_descriptors_leave_the_server_going(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(serving(tmp_path))
            resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
            place = urlsplit(server.url)
            with contextlib.ExitStack() as many:
                for _ in range(1200):
                    many.enter_context(socket.create_connection((place.hostname or "", place.port or 0), timeout=30))
                assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 1024
            assert server.ask("GET", "/healthz").json()["status"] == "ok"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.anyio
async def test_what_a_client_left_behind_is_found_by_the_next_one_and_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        async with client_of(server.url) as client:
            run_id = (await call(client, "start_run", task="softmax"))["run"]["run_id"]
            asked = {"run_id": run_id, "source": FUSED, "up_to": "quick_time"}
            begun = await call(client, "compile", **asked, wait_s=0)
            assert begun["status"] == "running"
        async with client_of(server.url, mode="legacy") as client:
            job = (await call(client, "job", job_id=begun["job_id"], wait_s=60))["job"]
            assert (job["state"], job["reply"]["rung"]) == ("done", "quick")
        assert server.leave() == 0
    with serving(tmp_path) as server:
        async with client_of(server.url) as client:
            again = await call(client, "job", job_id=begun["job_id"])
            assert again["job"]["reply"] == job["reply"]
            replayed = await call(client, "compile", **asked)
            assert all(step["replayed"] for step in replayed["climbed"])
            assert replayed["cost"]["charged_s"] == 0
    report = audit(tmp_path / "ledger.db")
    assert report.ok, report.findings


@pytest.mark.anyio
async def test_one_who_cancels_everything_frees_its_place_at_once(server: HttpServer, folder: Path) -> None:
    async with client_of(server.url, token(server, folder, "fickle")) as client:
        run_id = (await call(client, "start_run", task="softmax"))["run"]["run_id"]
        jobs = [
            (await call(client, "compile", run_id=run_id, source=f"{SLOW}# {n}\n", up_to="quick_time", wait_s=0))[
                "job_id"
            ]
            for n in range(6)
        ]
        for job_id in jobs:
            await call(client, "job", job_id=job_id, action="cancel")
        states = [(await call(client, "job", job_id=job_id, wait_s=30))["job"]["state"] for job_id in jobs]
    assert set(states) == {"cancelled"}
    with Ledger.open(folder / "ledger.db") as ledger:
        assert ledger.open_holds(run_id) == ()


@pytest.mark.anyio
async def test_an_account_that_floods_is_refused_and_another_is_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, server: HttpServer
) -> None:
    async with client_of(server.url, token(server, folder, "flood")) as flood:
        run_id = (await call(flood, "start_run", task="softmax"))["run"]["run_id"]
        replies: list[dict[str, Any]] = []

        async def one(n: int) -> None:
            source = f"{SLOW}# flood {n}\n"
            replies.append(await call(flood, "compile", run_id=run_id, source=source, up_to="quick_time", wait_s=0))

        async with anyio.create_task_group() as group:
            for n in range(Workshop.MOST + 6):
                group.start_soon(one, n)
        refused = [reply["error"] for reply in replies if "error" in reply]
        assert refused
        assert all("calls of this account are at work" in why for why in refused)
        async with client_of(server.url, token(server, folder, "calm")) as calm:
            other = (await call(calm, "start_run", task="softmax"))["run"]["run_id"]
            checked = await call(calm, "compile", run_id=other, source=FUSED, up_to="check_correctness", wait_s=100)
            assert checked["verdict"] == "correct"
        for reply in replies:
            if "job_id" in reply:
                await call(flood, "job", job_id=reply["job_id"], action="cancel")


def test_from_elsewhere_a_token_is_needed_and_one_of_another_server_does_not_do(tmp_path: Path) -> None:
    url = "http://gpu-host:8642/mcp"
    secret, other = Tokens(tmp_path).add("alice", url)[1], Tokens(tmp_path).add("alice", "http://old-host:1/mcp")[1]
    with serving(tmp_path, "--url", url, at="0.0.0.0:0") as server:
        assert server.said == f"kernelgate serves {url} (each request needs a token)\n"
        port = listening_port(server.process.pid)
        near = f"http://127.0.0.1:{port}"
        host = {**HEADERS, "Host": "gpu-host:8642"}

        def status(**headers: str) -> int:
            return httpx2.post(f"{near}/mcp", json=INITIALIZE, headers={**host, **headers}, timeout=30).status_code

        assert status(Authorization=f"Bearer {secret}") == 200
        assert status(Authorization=f"Bearer {other}") == 401
        assert status() == 401
        assert status(Authorization=f"Bearer {secret}", Host=f"127.0.0.1:{port}") == 421
        assert status(Authorization=f"Bearer {secret}", Origin="http://evil.example") == 403
        assert status(Host="gpu-host:8642/healthz?") == 401, (
            "a path in the Host header is not the path that is asked for"
        )
        assert httpx2.get(f"{near}/healthz", timeout=30).json()["status"] == "ok"


def listening_port(pid: int) -> int:
    """The port of the one TCP socket on which a process listens."""
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    for line in Path(f"/proc/{pid}/net/tcp").read_text("ascii").splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            return int(fields[1].partition(":")[2], 16)
    raise AssertionError("it listens nowhere")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--http", "0.0.0.0:0"), "listens everywhere: say with --url under which address"),
        (("--http", "0.0.0.0:0", "--url", "http://gpu-host/mcp"), "no token opens http://gpu-host/mcp yet: make one"),
        (("--http", "0", "--require-token"), "no token opens http://127.0.0.1:"),
        (("--http", "host.example:80"), "give the address of this host as a number"),
        (("--http", "127.1:0"), "give the address of this host as a number"),
        (("--http", "cafe:0"), "give the address of this host as a number"),
        (("--http", "70000"), "is no place to listen at"),
        (("--http", "192.0.2.1:0"), "cannot be listened at"),
        (("--http", "0", "--url", "nonsense"), "'nonsense' is no address of a server"),
        (("--url", "http://h/mcp"), "give --http PORT too"),
    ],
)
def test_a_place_that_does_not_do_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-P", "-m", "kernelgate.server", "serve", "--device", "cpu", "--data", str(tmp_path)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told(tmp_path: Path, server: HttpServer) -> None:
    command = [sys.executable, "-P", "-m", "kernelgate.server", "serve", "--device", "cpu", "--data", str(tmp_path)]
    done = subprocess.run(
        [*command, "--http", str(urlsplit(server.url).port)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "cannot be listened at (Address already in use): give another" in done.stderr


def test_answers_are_not_held_back_by_the_network_stack() -> None:
    with listening(place_of("127.0.0.1:0", "", needs_token=False)) as sock:
        assert sock.proto == socket.IPPROTO_TCP, "else asyncio leaves Nagle's delay on: 40 ms an answer"

"""Who connects and does not ask: closed in time, and never in the way of who does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import anyio
import pytest
import uvicorn
from anyio.abc import SocketStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from kernelgate.server import connections
from kernelgate.server.connections import Patience

pytestmark = pytest.mark.anyio
ASKED = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(connections, "ARRIVE_WITHIN_S", 0.2)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    config = uvicorn.Config(Starlette(routes=[Route("/", echo, methods=["POST"])]), http=Patience, ws="none")
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Patience(config, state, {}), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for connection in list(state.connections):
        connection.transport.abort()  # type: ignore[union-attr]  # it was made by this server
    await anyio.wait_all_tasks_blocked()


async def closed(stream: SocketStream) -> bool:
    """Whether the server ends it unheard."""
    with anyio.fail_after(10), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
        await stream.receive()
    return True


async def answered(stream: SocketStream) -> bool:
    """Whether the whole request is answered."""
    got = b""
    with anyio.fail_after(10):
        while not got.endswith(b"body"):
            got += await stream.receive()
    return got.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("said", [b"", ASKED[:9], ASKED[:-1]], ids=["nothing", "half a header", "half a body"])
async def test_a_request_that_does_not_arrive_ends_its_connection(port: int, said: bytes) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(said)
        assert await closed(stream)


async def test_each_request_of_a_connection_is_waited_for_anew_and_none_for_ever(port: int) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for _ in range(2):
            await stream.send(ASKED[:-1])
            await stream.send(ASKED[-1:])
            assert await answered(stream)
        await stream.send(ASKED[:-1])
        assert await closed(stream)


async def test_a_half_request_behind_a_whole_one_is_not_waited_for_either(port: int) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(ASKED + ASKED[:-1])
        assert await answered(stream)
        assert await closed(stream)


async def test_one_connection_too_many_is_closed_and_the_others_are_served(port: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(4)]
        assert await closed(streams[3])
        await streams[0].send(ASKED)
        assert await answered(streams[0])


async def test_in_a_crowd_no_connection_is_kept_open_after_its_answer(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEEP_UP_TO", 1)
    async with (
        await anyio.connect_tcp("127.0.0.1", port) as alone,
        await anyio.connect_tcp("127.0.0.1", port) as second,
    ):
        await second.send(ASKED)
        assert await answered(second)
        assert await closed(second)
        await alone.send(ASKED)
        assert await answered(alone)

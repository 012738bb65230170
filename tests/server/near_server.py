"""The whole HTTP application in the test's own process, so that a test can put something in its place; no socket."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from kernelgate.server.serve_http import place_of, web_app
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.server.tokens import Tokens
from kernelgate.tools.kit.runner import Runner

HOST = "http://127.0.0.1:1"
URL = f"{HOST}/mcp"


@asynccontextmanager
async def near(folder: Path, runners: Mapping[str, Runner] | None = None) -> AsyncIterator[httpx2.ASGITransport]:
    """What reaches an application over this folder, in place of a network."""
    place = place_of("127.0.0.1:1", "", needs_token=False).at(1)
    settings = Settings(data_dir=folder, device="cpu")
    app = web_app(lambda: open_services(settings, runners), place, Tokens(folder))
    async with app.router.lifespan_context(app):
        yield httpx2.ASGITransport(app)


@asynccontextmanager
async def near_client(transport: httpx2.ASGITransport, token: str = "") -> AsyncIterator[Client]:
    """A real MCP client of it."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers) as http,
        Client(streamable_http_client(URL, http_client=http)) as client,
    ):
        yield client

"""One live server for the tests of this folder: real ledger, real worker on the CPU device, a real MCP client."""

from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal
from live_server import Live
from mcp import Client

from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("live"), device="cpu")
    server = build(lambda: open_services(settings))
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(Client(server)) as client,
    ):
        yield Live(portal, client, settings.data_dir)

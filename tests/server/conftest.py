"""One live server for the tests of this folder: real ledger, real worker on the CPU device, a real MCP client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client

from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings


class Reply(dict[str, Any]):
    """The structure of a reply, with the text beside it."""

    def __init__(self, structure: dict[str, Any], text: str, *, is_error: bool) -> None:
        super().__init__(structure)
        self.text = text
        self.is_error = is_error


class Live:
    """Calls tools on the live server."""

    def __init__(self, portal: Any, client: Client, data_dir: Path) -> None:
        self._portal = portal
        self._client = client
        self.data_dir = data_dir

    def call(self, tool: str, **arguments: Any) -> Reply:
        result = self._portal.call(self._client.call_tool, tool, arguments)
        text = "".join(part.text for part in result.content)
        if not result.is_error:
            assert json.loads(text) == result.structured_content, "text and structure must say the same"
        return Reply(result.structured_content or {}, text, is_error=result.is_error)

    def run(self, task: str = "softmax", **budget: Any) -> str:
        return str(self.call("start_run", task=task, **budget)["run"]["run_id"])

    def submit(self, run_id: str, body: str, **arguments: Any) -> Reply:
        """Compile a candidate whose forward has that body."""
        return self.call("compile", run_id=run_id, source=forward(body), **arguments)

    def ledger(self) -> Ledger:
        return Ledger.open(self.data_dir / "ledger.db")


def forward(body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}"


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("live"), device="cpu")
    server = build(lambda: open_services(settings))
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(Client(server)) as client,
    ):
        yield Live(portal, client, settings.data_dir)

"""A task is tried before a run is opened; one that takes too long is refused in one sentence."""

from pathlib import Path

import pytest
from fakes import FakeRunner
from going_well import finished
from mcp import Client

from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.wire import ChildExit


@pytest.mark.anyio
async def test_a_reference_that_takes_minutes_is_told_what_to_do(tmp_path: Path) -> None:
    runner = FakeRunner(lambda request: finished(request, None, exit=ChildExit(kind="cap_reached")))
    server = build(lambda: open_services(Settings(data_dir=tmp_path, device="cpu"), {"cpu": runner}))
    async with Client(server) as client:
        refused = await client.call_tool("start_run", {"task": "softmax"})
    assert refused.is_error
    assert "took more than 240 s: give it smaller workloads in a task.toml" in refused.content[0].text

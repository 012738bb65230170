"""A task that takes no operators of torch holds also for what cannot be traced, through a real server and worker."""

from pathlib import Path
from typing import Any

import pytest
from live_server import forward
from mcp import Client

from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1
def get_inputs():
    return [torch.rand(16, 32)]
def get_init_inputs():
    return []
"""


@pytest.mark.long
@pytest.mark.anyio
async def test_a_value_that_is_read_hides_no_operator_from_a_task_that_takes_none(tmp_path: Path) -> None:
    folder = tmp_path / "tasks/own"
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (folder / "task.toml").write_text("allow_library_calls = false\n[[workload]]\nname = 'only'\n", encoding="utf-8")
    settings = Settings(data_dir=tmp_path / "data", device="cpu", task_dirs=(tmp_path / "tasks",))
    async with Client(build(lambda: open_services(settings))) as client:

        async def compiled(body: str) -> dict[str, Any]:
            arguments = {"run_id": "r1", "source": forward(body)}
            reply: dict[str, Any] = (await client.call_tool("compile", arguments)).structured_content
            return reply

        assert not (await client.call_tool("start_run", {"task": "own"})).is_error
        hides = await compiled("value = x.numpy()[0, 0]\nreturn x * 2 + 1")
        assert (hides["verdict"], hides["report"]["code"]) == ("forbidden", "REFERENCE_CALL")
        assert "mul" in hides["summary"]
        own = await compiled("return torch.from_numpy(x.numpy() * 2 + 1)")
        assert own["verdict"] == "built", own["summary"]

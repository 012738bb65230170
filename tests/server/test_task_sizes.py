"""After the first run an agent reads at which sizes its candidates are judged, through a real server and worker."""

from pathlib import Path

import pytest
from mcp import Client

from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings

SOURCE = """
import torch
ROWS, COLS = 65536, 4096
class Model(torch.nn.Module):
    def forward(self, x, steps):
        return torch.softmax(x, dim=-1) * steps
def get_inputs():
    return [torch.rand(ROWS, COLS), 3]
def get_init_inputs():
    return []
"""


@pytest.mark.anyio
async def test_a_users_own_file_names_the_sizes_that_were_found_for_it(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/mine.py").write_text(SOURCE, encoding="utf-8")
    settings = Settings(data_dir=tmp_path / "data", device="cpu", task_dirs=(tmp_path / "tasks",))
    async with Client(build(lambda: open_services(settings))) as client:
        before = (await client.call_tool("get_task", {"task": "mine"})).structured_content
        started = await client.call_tool("start_run", {"task": "mine"})
        assert not started.is_error, started.content
        after = (await client.call_tool("get_task", {"task": "mine"})).structured_content
    assert [sorted(workload) for workload in before["workloads"]] == [
        ["devices", "name", "set"], ["devices", "name", "sizes"], ["devices", "name", "sizes"]
    ]  # fmt: skip
    for workload in after["workloads"][1:]:
        assert "sizes" not in workload
        rows, columns = workload["set"]["ROWS"], workload["set"]["COLS"]
        assert workload["inputs"] == [f"float32 [{rows}, {columns}]", "int"]
    assert after["workloads"][2]["set"]["ROWS"] > after["workloads"][1]["set"]["ROWS"]

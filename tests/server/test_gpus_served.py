"""What commands and tools say on a host whose GPUs cannot be used, cannot all be used, or are lost meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRunner
from going_well import correct, finished
from mcp import Client
from test_gpus import nvml
from test_health import Host, hosted, qualified

from kernelgate.server import doctor_command, preflight, services, task_commands
from kernelgate.server.app import build
from kernelgate.server.doctor import Report
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings

WITHOUT_CUDA = "On the CPU, because cuda:0, cuda:1 cannot be used: the torch that is installed is built without CUDA"

EXTENSION = """
import torch
from torch.utils.cpp_extension import load_inline
kernels = load_inline("kernels", cpp_sources="", cuda_sources="", functions=[])
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return kernels.softmax(x)
"""


async def said(client: Client, tool: str, **arguments: Any) -> str:
    result: Any = await client.call_tool(tool, arguments)
    return str(result.content[0].text)


@pytest.mark.anyio
async def test_a_run_that_goes_to_the_cpu_for_want_of_a_usable_gpu_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(monkeypatch, built_for="")
    async with hosted(Host(tmp_path, correct), device="") as host:
        told = await said(host.client, "start_run", task="softmax")
        assert "device cpu with" in told
        assert WITHOUT_CUDA in told
        assert WITHOUT_CUDA not in await said(host.client, "start_run", task="softmax", device="cpu")
        assert "built without CUDA" in await said(host.client, "start_run", task="softmax", device="cuda:0")


@pytest.mark.anyio
async def test_a_gpu_that_is_lost_in_a_run_is_a_sentence_and_the_other_takes_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(monkeypatch)
    runner = FakeRunner(Host(tmp_path, correct).answer)
    server = build(lambda: open_services(Settings(data_dir=tmp_path), {"GPU-00": runner, "GPU-11": runner}))
    async with Client(server) as client:
        assert "r1 on softmax, device cuda" in await said(client, "start_run", task="softmax")
        nvml(monkeypatch, lost=0)
        told = await said(client, "compile", run_id="r1", source="x = 1")
        assert "device 'GPU-00' is not here: this host has cuda:0 (a GPU that does not answer), cuda:1" in told
        assert "softmax" in await said(client, "get_task", task="softmax")
        assert "r2 on softmax, device cuda" in await said(client, "start_run", task="softmax")
    assert [request.device.uid for request in runner.requests] == ["GPU-00", "GPU-11"]


@pytest.mark.anyio
@pytest.mark.parametrize("wish", ["cuda:x", "MIG-11aa", "gpu", "cuda:0 "])
async def test_a_name_that_no_device_has_is_refused_with_the_names_that_are_allowed(tmp_path: Path, wish: str) -> None:
    async with Client(build(lambda: open_services(Settings(data_dir=tmp_path, device="cpu")))) as client:
        told = await said(client, "start_run", task="softmax", device=wish)
    assert told.startswith(f"start_run: device: {wish} names no device: use cpu, cuda or cuda:N")
    assert "pattern" not in told


@pytest.mark.anyio
async def test_what_could_not_be_built_is_tried_again_once_the_programs_of_the_host_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(monkeypatch)
    path = os.environ["PATH"]
    async with hosted(Host(tmp_path / "data", correct)) as host:
        host.others["compile"] = lambda request: finished(request, {"language": "cuda", "missing": ["nvcc"]})
        source = {"run_id": "r1", "source": EXTENSION}
        for _ in range(2):
            assert "needs_device" in await said(host.client, "compile", **source)
        assert host.asked.count("compile") == 1, "the second answer is from the book"
        (tmp_path / "nvcc").write_text("#!/bin/sh\n")
        (tmp_path / "nvcc").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{path}")
        monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
        host.others["compile"] = lambda request: finished(request, {"language": "cuda", "extensions": ["mine"]})
        host.others["device_build"] = lambda request: finished(request, {"workloads": ["w"], "prepare_s": 1.0})
        assert '"built"' in await said(host.client, "compile", **source)
    assert host.asked.count("compile") == 2


@contextmanager
def fake_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Kinds of the devices whose worker was started to ask it."""
    kinds: list[str] = []

    def made(device: Any, *_: Any) -> FakeRunner:
        kinds.append(device.kind)
        return FakeRunner(qualified)

    monkeypatch.setattr(preflight, "SupervisorRunner", made)
    monkeypatch.setattr(services, "SupervisorRunner", made)
    yield kinds


def test_doctor_reports_beside_a_gpu_that_cannot_be_used_and_asks_the_worker_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml(monkeypatch, mig=1)
    with fake_workers(monkeypatch) as kinds:
        status = doctor_command.run_doctor(Settings(data_dir=tmp_path, device="cuda:0"), as_json=True)
        report = Report.model_validate_json(capsys.readouterr().out)
        assert (status, kinds) == (1, ["cpu"]), "the server would not start with these settings"
        assert doctor_command.run_doctor(Settings(data_dir=tmp_path), as_json=True) == 0
    assert "check, time and profile candidates on the GPU" in report.cannot
    assert report.cannot[-1].startswith("use the device of the settings: cuda:0 cannot be used: it is in MIG mode")
    assert "check and time PyTorch candidates on the CPU" in report.can
    assert "confinement" in {check.name for check in report.checks}


def test_tasks_are_checked_on_the_cpu_with_a_note_where_no_gpu_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml(monkeypatch, built_for="")
    with fake_workers(monkeypatch):
        assert task_commands.check_tasks(Settings(data_dir=tmp_path), ("softmax",)) == 0
    note, fit = capsys.readouterr().out.splitlines()[:2]
    assert note.startswith(f"note     {WITHOUT_CUDA}")
    assert fit.startswith("fit      softmax on cpu")

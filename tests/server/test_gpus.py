"""Which GPU a wish means, and that one which cannot be measured on says so in one sentence."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kernelgate.server.environment import device_of
from kernelgate.server.gpus import Gpu, GpuProcess, NoSuchDevice, chosen, list_gpus, list_processes

ONE = Gpu(uuid="GPU-11aa", name="NVIDIA H200", target="sm_90", driver="580.1")
TWO = ONE.model_copy(update={"uuid": "GPU-22bb"})
BUSY = ONE.model_copy(update={"problem": "it is in MIG mode"})


class NVMLError(Exception):
    """As pynvml's."""


def nvml(monkeypatch: pytest.MonkeyPatch, *, mode: int = 0, mig: int | None = None) -> None:
    def mig_mode(handle: int) -> tuple[int, int]:
        if mig is None:
            raise NVMLError("Not Supported")
        return mig, mig

    fake: Any = SimpleNamespace(
        NVMLError=NVMLError, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS=3, NVML_COMPUTEMODE_PROHIBITED=2,
        nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index, nvmlDeviceGetCudaComputeCapability=lambda handle: (9, 0),
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}{handle}", nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlSystemGetDriverVersion=lambda: "580.1", nvmlDeviceGetComputeMode=lambda handle: mode if handle else 0,
        nvmlDeviceGetMigMode=mig_mode, nvmlDeviceGetComputeRunningProcesses=lambda handle: [],
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", fake)


@pytest.mark.parametrize(
    ("wish", "index"), [("", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("GPU-22bb", 1), ("GPU-11aa", 0)]
)
def test_a_gpu_is_chosen_by_index_or_uuid(wish: str, index: int) -> None:
    assert chosen(wish, [ONE, TWO]) == (index, [ONE, TWO][index])


@pytest.mark.parametrize("wish", ["cuda:2", "GPU-33cc"])
def test_one_that_is_not_here_is_refused_with_what_there_is(wish: str) -> None:
    with pytest.raises(NoSuchDevice, match=r"cuda:0 \(NVIDIA H200, GPU-11aa\), cuda:1 \(NVIDIA H200, GPU-22bb\)"):
        chosen(wish, [ONE, TWO])


def test_no_wish_passes_over_a_gpu_that_cannot_be_used_and_a_wish_does_not() -> None:
    assert chosen("", [BUSY, TWO]) == (1, TWO)
    for wish in ("cuda", "cuda:0", "GPU-11aa"):
        with pytest.raises(NoSuchDevice, match="cuda:0 cannot be used: it is in MIG mode"):
            chosen(wish, [BUSY, TWO])
    with pytest.raises(NoSuchDevice, match="cuda:0 cannot be used"):
        chosen("", [BUSY])


@pytest.mark.parametrize(("mode", "said"), [(3, "exclusive-process"), (2, "prohibited")])
def test_a_mode_that_allows_one_process_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, mode: int, said: str
) -> None:
    nvml(monkeypatch, mode=mode)
    first, second = list_gpus()
    assert first.problem == ""
    assert said in second.problem
    assert "nvidia-smi -i 1 -c DEFAULT" in second.problem


def test_a_gpu_cut_into_instances_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, mig=1)
    assert all("MIG" in gpu.problem for gpu in list_gpus())
    nvml(monkeypatch, mig=0)
    assert all(gpu.problem == "" for gpu in list_gpus())


def test_the_device_of_a_run_is_found_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch)
    device = device_of("GPU-11", threads=1, target="sm_80")
    assert (device.kind, device.index, device.uid, device.target) == ("cuda", 1, "GPU-11", "sm_90")


def test_who_computes_on_each_gpu_is_listed_and_one_that_does_not_tell_hides_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def running(handle: int) -> list[SimpleNamespace]:
        if handle == 0:
            raise NVMLError("GPU is lost")
        return [SimpleNamespace(pid=123, usedGpuMemory=512 << 20), SimpleNamespace(pid=124, usedGpuMemory=None)]

    nvml(monkeypatch)
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlDeviceGetComputeRunningProcesses", running, raising=False)
    assert list_processes() == (
        GpuProcess(index=1, pid=123, memory_mib=512), GpuProcess(index=1, pid=124, memory_mib=0),
    )  # fmt: skip


def test_without_a_driver_nobody_computes_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise NVMLError("Driver Not Loaded")

    nvml(monkeypatch)
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", no_driver)
    assert list_processes() == ()

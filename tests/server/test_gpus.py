"""Which GPU a wish means, and that one which cannot be measured on says so in one sentence and hides no other."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kernelgate.server import gpus
from kernelgate.server.environment import device_of, why_on_cpu
from kernelgate.server.gpus import (
    VISIBLE,
    Gpu,
    GpuProcess,
    NoSuchDevice,
    chosen,
    list_gpus,
    list_processes,
    visible,
    why_hidden,
)

ONE = Gpu(uuid="GPU-11aa", name="NVIDIA H200", target="sm_90", driver="580.1")
TWO = ONE.model_copy(update={"uuid": "GPU-22bb"})
BUSY = ONE.model_copy(update={"problem": "it is in MIG mode"})


class NVMLError(Exception):
    """As pynvml's."""


class NoLibrary(NVMLError):
    """As pynvml's."""


class NoDriver(NVMLError):
    """As pynvml's."""


def nvml(
    monkeypatch: pytest.MonkeyPatch, *, mode: int = 0, mig: int | None = None, lost: int | None = None,
    built_for: str | None = "13.0", seen: str | None = None,
) -> None:  # fmt: skip
    """Two GPUs; the second in a compute mode, both in a MIG mode, one lost; torch's CUDA; `CUDA_VISIBLE_DEVICES`."""

    def handle_of(index: int) -> int:
        if index == lost:
            raise NVMLError("GPU is lost")
        return index

    def mig_mode(handle: int) -> tuple[int, int]:
        if mig is None:
            raise NVMLError("Not Supported")
        return mig, mig

    fake: Any = SimpleNamespace(
        NVMLError=NVMLError, NVMLError_LibraryNotFound=NoLibrary, NVMLError_DriverNotLoaded=NoDriver,
        NVML_COMPUTEMODE_EXCLUSIVE_PROCESS=3, NVML_COMPUTEMODE_PROHIBITED=2,
        nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=handle_of,
        nvmlDeviceGetHandleByUUID=lambda uuid: handle_of(int(uuid[-1:] or -1)),
        nvmlDeviceGetCudaComputeCapability=lambda handle: (9, 0),
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}{handle}", nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlSystemGetDriverVersion=lambda: "580.1", nvmlDeviceGetComputeMode=lambda handle: mode if handle else 0,
        nvmlDeviceGetMigMode=mig_mode, nvmlDeviceGetComputeRunningProcesses=lambda handle: [],
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpus, "torch_cuda", lambda: built_for)
    monkeypatch.delenv(VISIBLE, raising=False)
    if seen is not None:
        monkeypatch.setenv(VISIBLE, seen)


@pytest.mark.parametrize(
    ("wish", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("GPU-22bb", 1), ("GPU-11aa", 0)]
)
def test_a_gpu_is_chosen_by_index_or_uuid(wish: str, index: int) -> None:
    assert chosen(wish, [ONE, TWO]) == (index, [ONE, TWO][index])


@pytest.mark.parametrize("wish", ["cuda:2", "GPU-33cc"])
def test_one_that_is_not_here_is_refused_with_what_there_is(wish: str) -> None:
    with pytest.raises(NoSuchDevice, match=r"cuda:0 \(NVIDIA H200, GPU-11aa\), cuda:1 \(NVIDIA H200, GPU-22bb\)"):
        chosen(wish, [ONE, TWO])


def test_any_gpu_is_one_that_can_be_used_and_one_by_name_is_that_one_or_refused() -> None:
    assert chosen("cuda", [BUSY, TWO]) == (1, TWO)
    for wish in ("cuda:0", "GPU-11aa"):
        with pytest.raises(NoSuchDevice, match=r"cuda:0 cannot be used: it is in MIG mode. Use cuda:1 or cpu\.$"):
            chosen(wish, [BUSY, TWO])
    with pytest.raises(NoSuchDevice, match=r"cuda:0, cuda:1 cannot be used: it is in MIG mode. Use cpu\."):
        chosen("cuda", [BUSY, BUSY])


def test_a_lost_gpu_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, lost=0)
    first, second = list_gpus()
    assert "no answer from it (GPU is lost)" in first.problem
    assert (second.uuid, second.problem) == ("GPU-11", "")
    assert device_of("", threads=1, target="sm_80").uid == "GPU-11"
    with pytest.raises(NoSuchDevice, match=r"cuda:0 cannot be used: .*lost.* Use cuda:1 or cpu\."):
        device_of("cuda:0", threads=1, target="sm_80")


def test_the_run_of_a_lost_gpu_is_told_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, lost=0)
    with pytest.raises(NoSuchDevice, match=r"this host has cuda:0 \(a GPU that does not answer\), cuda:1 \(NVIDIA"):
        device_of("GPU-00", threads=1, target="sm_80")


@pytest.mark.parametrize("asked", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_driver_that_does_not_even_count_is_told_as_one_gpu_with_a_problem(
    monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    def uncounted() -> int:
        raise NVMLError("Driver/library version mismatch")

    nvml(monkeypatch)
    monkeypatch.setattr(sys.modules["pynvml"], asked, uncounted)
    assert device_of("", threads=1, target="sm_80").kind == "cpu"
    assert list_processes() == ()
    with pytest.raises(NoSuchDevice, match=r"driver does not answer .*mismatch"):
        device_of("cuda", threads=1, target="sm_80")


@pytest.mark.parametrize(
    ("state", "said"),
    [({"built_for": ""}, "cuda:0 cannot be used: .* built without CUDA"), ({"mig": 1}, "it is in MIG mode")],
)
def test_no_wish_goes_to_the_cpu_where_no_gpu_can_be_used_and_says_why(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], said: str
) -> None:
    nvml(monkeypatch, **state)
    assert device_of("", threads=1, target="sm_80").kind == "cpu"
    with pytest.raises(NoSuchDevice, match=said):
        device_of("cuda:0", threads=1, target="sm_80")
    assert why_on_cpu("").startswith("On the CPU, because cuda:0")
    assert why_on_cpu("cpu") == "", "who asks for the CPU needs no reason"


@pytest.mark.parametrize("built_for", ["13.0", None], ids=["for CUDA", "not known"])
def test_a_gpu_that_can_be_used_needs_no_excuse(monkeypatch: pytest.MonkeyPatch, built_for: str | None) -> None:
    nvml(monkeypatch, built_for=built_for)
    assert device_of("", threads=1, target="sm_80").kind == "cuda"
    assert why_on_cpu("") == ""


@pytest.mark.parametrize(
    ("setting", "left"),
    [
        (None, (0, 1)), ("", ()), ("-1", ()), ("1", (1,)), ("1,0", (1, 0)), (" 1 , 0", (1, 0)), ("1,7,0", (1,)),
        ("0,0", (0,)), ("GPU-22bb", (1,)), ("GPU-2", (1,)), ("GPU-", ()), ("MIG-11aa", ()), ("GPU-22bb,0", (1, 0)),
    ],
)  # fmt: skip
def test_the_environment_leaves_the_gpus_that_cuda_would_leave(setting: str | None, left: tuple[int, ...]) -> None:
    assert visible(setting, [ONE, TWO]) == left


def test_gpus_are_counted_as_cuda_counts_those_that_the_environment_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, seen="1")
    assert [gpu.uuid for gpu in list_gpus()] == ["GPU-11"]
    device = device_of("cuda:0", threads=1, target="sm_80")
    assert (device.index, device.number, device.uid) == (0, 1, "GPU-11")
    for wish in ("cuda:1", "GPU-00"):
        with pytest.raises(
            NoSuchDevice, match=r"this host has cuda:0 \(.*GPU-11\); CUDA_VISIBLE_DEVICES=1 leaves 1 of 2"
        ):
            device_of(wish, threads=1, target="sm_80")


def test_an_environment_that_leaves_no_gpu_means_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, seen="")
    assert device_of("", threads=1, target="sm_80").kind == "cpu"
    assert why_hidden() == "CUDA_VISIBLE_DEVICES= leaves none of 2 GPU(s)"
    with pytest.raises(NoSuchDevice, match=r"'cuda' is not here: CUDA_VISIBLE_DEVICES= leaves none .* Use cpu\."):
        device_of("cuda", threads=1, target="sm_80")
    nvml(monkeypatch)
    assert why_hidden() == ""


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
    monkeypatch.setenv(VISIBLE, "1")
    assert {one.index for one in list_processes()} == {0}, "the number that CUDA and `list_gpus` give it"


@pytest.mark.parametrize("absent", [NoLibrary, NoDriver])
def test_without_a_driver_there_is_no_gpu_and_nobody_computes_on_one(
    monkeypatch: pytest.MonkeyPatch, absent: type[NVMLError]
) -> None:
    def no_driver() -> None:
        raise absent

    nvml(monkeypatch)
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", no_driver)
    assert list_gpus() == ()
    assert list_processes() == ()

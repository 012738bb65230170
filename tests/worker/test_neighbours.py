"""Foreign processes on a device are told; ours, and those of other servers that the lease lists, are not."""

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kernelgate.tools.worker import processes
from kernelgate.tools.worker.lease import this_process
from kernelgate.tools.worker.neighbours import MOST, Neighbours, told


class NVMLError(Exception):
    """As pynvml's."""


def nvml(monkeypatch: pytest.MonkeyPatch, pids: list[int], *, listing_fails: bool = False) -> None:
    def running(handle: str) -> list[SimpleNamespace]:
        assert handle == "GPU-1"
        if listing_fails:
            raise NVMLError
        return [SimpleNamespace(pid=pid, usedGpuMemory=512 << 20) for pid in pids]

    fake = SimpleNamespace(
        NVMLError=NVMLError, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uid: uid,
        nvmlDeviceGetComputeRunningProcesses=running,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", fake)


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that hangs below another one, as a referee below its keeper; yields the upper one."""
    command = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"
    with subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE) as process:
        while not processes.children(process.pid):
            assert process.poll() is None
        yield process.pid


def test_a_process_of_somebody_else_is_told_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, [1, os.getpid()])
    assert Neighbours("GPU-1").foreign(()) == {1: 512}
    assert told({1: 512}) == [{"pid": 1, "memory_mib": 512}]


def test_what_hangs_below_us_is_ours(monkeypatch: pytest.MonkeyPatch, sleeper: int) -> None:
    nvml(monkeypatch, [sleeper, *processes.descendants(sleeper)])
    assert Neighbours("GPU-1").foreign(()) == {}


def test_what_hangs_below_a_listed_resident_is_a_servers(monkeypatch: pytest.MonkeyPatch, sleeper: int) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 2**30)  # as another server sees it
    below = processes.descendants(sleeper)
    nvml(monkeypatch, below)
    resident = this_process(sleeper)
    assert Neighbours("GPU-1").foreign([resident]) == {}
    assert set(Neighbours("GPU-1").foreign(())) == set(below)
    earlier = resident.model_copy(update={"start_ticks": resident.start_ticks - 1})
    assert set(Neighbours("GPU-1").foreign([earlier])) == set(below), "its number belongs to another process now"


def test_a_number_that_this_host_does_not_know_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, [2**30])
    assert Neighbours("GPU-1").foreign(()) == {}


def test_without_an_answer_there_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, [1], listing_fails=True)
    assert Neighbours("GPU-1").foreign(()) == {}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Neighbours("GPU-1").foreign(()) == {}


def test_only_a_few_are_named() -> None:
    assert len(told(dict.fromkeys(range(100), 1))) == MOST

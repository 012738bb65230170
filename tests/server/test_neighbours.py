"""Foreign processes on a GPU are told; ours, and those of other servers that the lease lists, are not."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kernelgate.server import neighbours
from kernelgate.server.gpus import GpuProcess
from kernelgate.server.neighbours import MOST, Watch, foreign
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import processes

GPU = DeviceRef(kind="cuda", index=1, uid="GPU-test-neighbours")


def seen(*pids: int, index: int = 1) -> tuple[GpuProcess, ...]:
    return tuple(GpuProcess(index=index, pid=pid, memory_mib=512) for pid in pids)


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that hangs below another one, as a referee below its keeper; yields the upper one."""
    command = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"
    with subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE) as process:
        while not processes.children(process.pid):
            assert process.poll() is None
        yield process.pid


def test_a_process_of_somebody_else_is_told_with_its_memory() -> None:
    assert foreign(seen(1, os.getpid()), [os.getpid()]) == {1: 512}


def test_what_hangs_below_a_server_is_its_own(sleeper: int) -> None:
    assert foreign(seen(sleeper, *processes.descendants(sleeper)), [os.getpid()]) == {}
    below = processes.descendants(sleeper)
    assert foreign(seen(*below), [sleeper]) == {}
    assert set(foreign(seen(*below), [1 << 30])) == set(below)


def test_a_number_that_this_host_does_not_know_is_left_out() -> None:
    assert foreign(seen(1 << 30), []) == {}


def test_a_call_tells_who_was_there_on_its_own_gpu_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "EVERY_S", 0.0)
    coming = iter([(), seen(1), (), seen(os.getppid(), index=0)])
    monkeypatch.setattr(neighbours, "list_processes", lambda: next(coming))
    watch = Watch(GPU)
    for _ in range(4):
        watch.look()
    assert watch.told() == {"foreign_processes": [{"pid": 1, "memory_mib": 512}]}


def test_on_the_cpu_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "list_processes", lambda: pytest.fail("there is no GPU"))
    watch = Watch(DeviceRef(kind="cpu"))
    watch.look()
    assert watch.told() == {}


def test_only_a_few_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "list_processes", lambda: ())
    monkeypatch.setattr(neighbours, "foreign", lambda found, roots: dict.fromkeys(range(100), 1))
    watch = Watch(GPU)
    watch.look()
    told = watch.told()["foreign_processes"]
    assert isinstance(told, list)
    assert len(told) == MOST

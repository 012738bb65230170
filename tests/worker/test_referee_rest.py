"""A referee on a GPU that is not asked gives memory back: first what is kept for later, then the weights too.

And what it could not do is a sentence, with a traceback where something broke.
"""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness import heard

from kernelgate.tools.worker import frames, referee, reference
from kernelgate.tools.worker.cuda_driver import CudaFailure
from kernelgate.tools.worker.referee import Referee
from kernelgate.tools.worker.reference import TaskError


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    monkeypatch.setattr(referee, "PAUSE_S", 0.01)
    monkeypatch.setattr(referee, "IDLE_S", 0.02)
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was given back, in order."""
    steps: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: steps.append("cache"))
    return steps


def resting(near: socket.socket, done: list[str], *, gpu: bool = True) -> Any:
    made: Any = Referee(near)
    made._gpu = SimpleNamespace(counting=SimpleNamespace(close=lambda: done.append("counters"))) if gpu else None
    made._house = SimpleNamespace(held={"w": SimpleNamespace(forget=lambda: done.append("weights"))})
    return made


def test_one_that_is_asked_at_once_keeps_all(line: tuple[socket.socket, socket.socket], done: list[str]) -> None:
    near, far = line
    far.sendall(b"x")
    resting(near, done).await_message(near)
    assert done == []


def test_one_that_is_not_asked_gives_back_all(line: tuple[socket.socket, socket.socket], done: list[str]) -> None:
    resting(line[0], done).await_message(line[0])
    assert done == ["cache", "weights", "counters", "cache"]


def test_on_the_cpu_there_is_nothing_to_give_back(line: tuple[socket.socket, socket.socket], done: list[str]) -> None:
    resting(line[0], done, gpu=False).await_message(line[0])
    assert done == []


@pytest.mark.parametrize(
    ("error", "said", "is_traced"),
    [
        (CudaFailure("this build of torch has no CUDA"), "this build of torch has no CUDA", False),
        (KeyError("x"), "The referee failed: KeyError: 'x'", True),
    ],
)
def test_a_host_without_what_cuda_needs_is_a_sentence_and_only_what_broke_leaves_a_traceback(
    line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    error: Exception, said: str, is_traced: bool,
) -> None:  # fmt: skip
    def failing(*_: Any) -> Any:
        raise error

    near, far = line
    monkeypatch.setattr(Referee, "answer", failing)
    frames.send(far, {"request_id": 1})
    far.shutdown(socket.SHUT_WR)
    referee.serve(near)
    assert heard(far) == {"op": "failed", "error": said, "request_id": 1}
    assert ("Traceback" in capsys.readouterr().err) is is_traced


def test_memory_that_a_reference_lacks_is_told_without_advice_on_torchs_settings() -> None:
    raised = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0 has 139 GiB. Try setting X=1."
    )
    with pytest.raises(TaskError) as told, reference._as_task_error("w", "forward"):
        raise raised
    assert (
        str(told.value)
        == "workload w, forward raised OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 GiB"
    )

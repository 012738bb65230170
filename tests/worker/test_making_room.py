"""Memory that an attempt without enough of it leaves behind."""

import gc
import weakref
from typing import Any

import torch
from test_qualifying import a_task, tried

from kernelgate.tools.worker import reference
from kernelgate.tools.worker.variants import CannotTell


def test_what_an_attempt_without_enough_memory_held_is_free_before_the_next_run(monkeypatch: Any) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    there: list[bool] = []

    def rounded(self: reference.HeldWorkload, arguments: object, seed: int) -> object:
        large = torch.ones(4)
        cycle: list[object] = [large]
        cycle.append(cycle)  # as the frames of a call are held by a module that was imported in its middle
        held.append(weakref.ref(large))
        raise CannotTell("out of memory")

    def expect(self: reference.HeldWorkload, arguments: object, seed: int) -> object:
        there.extend(each() is not None for each in held)
        return real(self, arguments, seed)

    real = reference.HeldWorkload.expect
    monkeypatch.setattr(reference.HeldWorkload, "rounded", rounded)
    monkeypatch.setattr(reference.HeldWorkload, "expect", expect)
    monkeypatch.setattr(reference.HeldWorkload, "fits", lambda self: False)
    gc.disable()
    try:
        tried(a_task("return torch.relu(x)", inputs="torch.randn(256, 257)", distributions=["normal"]))
    finally:
        gc.enable()
    assert there
    assert not any(there)

"""A qualification has no more in memory than the draw that it tries."""

import weakref
from typing import Any

import pytest
from test_qualifying import a_task, tried

from kernelgate.tools.worker import reference
from kernelgate.tools.worker.trials import Tried


def test_of_the_draw_before_nothing_is_kept_while_memory_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    before: list[weakref.ref[Any]] = []

    def asked(held: reference.HeldWorkload, times: int = 1) -> None:
        kept.extend(draw() is not None for draw in before)

    made = Tried.__init__

    def making(draw: Tried, *rest: Any) -> None:
        before.append(weakref.ref(draw))
        made(draw, *rest)

    monkeypatch.setattr(reference.HeldWorkload, "require_memory", asked)
    monkeypatch.setattr(Tried, "__init__", making)
    assert tried(a_task("return torch.tanh(x)"))[1].fit
    assert len(before) > 1
    assert not any(kept)

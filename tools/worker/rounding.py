"""Monte Carlo arithmetic: a float64 run in which each operation's result is disturbed as float32 rounding would.

How far it lands from the undisturbed run is what any honest float32 kernel may be off by, also where the reference is
lucky: rows that are all alike make its own error zero, and another order or another division multiplies one rounding
by 300. After D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

UNIT: Final = 2.0**-24
"""Rounding to float32 changes a number by at most this share of it."""
PIECE: Final = 1 << 24
"""Elements that are disturbed at once: the noise of a large result needs no memory of its size."""


class Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Disturbs what each operation has computed; what only looks at other memory (views) stays as it is."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by torch for each operation."""
        outcome = func(*args, **(kwargs or {}))
        for value, returned in zip(_listed(outcome), func._schema.returns, strict=False):
            if returned.alias_info is None or returned.alias_info.is_write:
                _disturb_each(value)
        return outcome


def disturbed(tensor: torch.Tensor) -> torch.Tensor:
    """A float64 tensor disturbed in a copy; any other as it is."""
    return tensor * _noise(tensor) if tensor.dtype is torch.float64 else tensor


def _listed(outcome: object) -> Sequence[object]:
    return cast("tuple[object, ...]", outcome) if isinstance(outcome, tuple) else (outcome,)


def _disturb_each(value: object) -> None:
    items = cast("list[object]", value) if isinstance(value, list) else (value,)
    for item in items:
        if isinstance(item, torch.Tensor) and item.dtype is torch.float64:
            _disturb(item)


def _disturb(tensor: torch.Tensor) -> None:
    if not tensor.is_contiguous():
        tensor.mul_(_noise(tensor))
        return
    flat = tensor.view(-1)
    for start in range(0, flat.numel(), PIECE):
        piece = flat[start : start + PIECE]
        piece.mul_(_noise(piece))


def _noise(tensor: torch.Tensor) -> torch.Tensor:
    """Factors between 1 - UNIT and 1 + UNIT."""
    return torch.rand_like(tensor).mul_(2 * UNIT).add_(1 - UNIT)

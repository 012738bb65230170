"""Monte Carlo arithmetic: a float64 run in which each operation's result is disturbed as float32 rounding would.

How far it lands from the undisturbed run is what any honest float32 kernel may be off by, also where the reference is
lucky: rows that are all alike make its own error zero, and another order or another division multiplies one rounding
by 300. After D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997.

What float32 computes exactly is not disturbed: a number that is moved, chosen, compared or made whole. Nor is an input
that is an index.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

UNIT: Final = 2.0**-24
"""Rounding to float32 changes a number by at most this share of it."""
PIECE: Final = 1 << 24
"""Elements that are disturbed at once: the noise of a large result needs no memory of its size."""
EXACT: Final = frozenset({
    "_to_copy", "abs", "amax", "amin", "aminmax", "arange", "bernoulli", "cat", "ceil", "clamp", "clamp_max",
    "clamp_min", "clone", "constant_pad_nd", "copy", "cummax", "cummin", "embedding", "empty", "empty_like",
    "eye", "fill", "flip", "floor", "fmod", "full", "full_like", "gather", "hardtanh", "heaviside", "index",
    "index_put", "index_select", "isfinite", "kthvalue", "masked_fill", "masked_scatter", "masked_select",
    "max", "max_pool2d_with_indices", "max_pool3d_with_indices", "maximum", "median", "min", "minimum", "mode",
    "nan_to_num", "neg", "new_empty", "new_full", "new_zeros", "nonzero", "one_hot", "ones", "ones_like", "put",
    "reflection_pad1d", "reflection_pad2d", "relu", "repeat", "replication_pad1d", "replication_pad2d", "roll",
    "round", "scalar_tensor", "scatter", "select_scatter", "sgn", "sign", "slice_scatter", "sort", "stack",
    "take", "topk", "tril", "triu", "trunc", "where", "zero", "zeros", "zeros_like",
})  # fmt: skip
"""Names of operations in aten, without the underscore of those that work in place."""


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
        if func._schema.name.rpartition("::")[2].rstrip("_") in EXACT:
            return outcome
        for value, returned in zip(_listed(outcome), func._schema.returns, strict=False):
            if returned.alias_info is None or returned.alias_info.is_write:
                _disturb_each(value)
        return outcome


def disturbed(tensor: torch.Tensor, *, keep_whole: bool) -> torch.Tensor:
    """A float64 tensor disturbed in a copy; any other, and with `keep_whole` one of whole numbers, as it is."""
    if tensor.dtype is not torch.float64 or (keep_whole and bool((tensor == tensor.trunc()).all())):
        return tensor
    return tensor * _noise(tensor)


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

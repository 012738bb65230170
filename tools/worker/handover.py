"""Putting a forward's output into the buffers made for it, and describing it: the same code on both sides."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from kernelgate.tools.worker.protocol import MAX_OUTPUTS, EntryAnswer, OutputClaim, ScalarNode
from kernelgate.tools.worker.structure import Unsupported, dtype_name, encode_scalar, leaves

_Described = tuple[str, type, torch.dtype | None, tuple[int, ...], tuple[int, ...], Any]
"""Path, type, dtype, shape, strides, device or value: cheap to make in a timed block, turned into a claim later."""


class Handover:
    """Takes outputs call by call; of each pool entry the last one counts."""

    def __init__(self, places: Mapping[int, Sequence[Mapping[str, torch.Tensor]]]) -> None:
        """`places`: pool entry → sets of path of an output → the buffer for it."""
        self._places = places
        self._last: dict[int, list[_Described]] = {}

    def take(self, entry: int, output: object, chosen: int = 0) -> None:
        """Copy an output into the buffers of a set where shape and dtype agree."""
        places = self._places[entry][chosen]
        described: list[_Described] = []
        # The usual answer is one tensor; it need not go through the generator.
        pairs = (("", output),) if type(output) is torch.Tensor else islice(leaves(output), MAX_OUTPUTS)
        for path, leaf in pairs:
            if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
                described.append((path, type(leaf), None, (), (), leaf))
                continue
            place = places.get(path)
            if place is not None and place.shape == leaf.shape and place.dtype == leaf.dtype:
                place.copy_(leaf)
            described.append((path, type(leaf), leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.device))
        self._last[entry] = described

    def answers(self) -> tuple[EntryAnswer, ...]:
        """What was taken; entries whose answers are described alike together."""
        groups: list[tuple[list[_Described], list[int]]] = []
        for entry, described in self._last.items():
            for known, entries in groups:
                if _alike(known, described):
                    entries.append(entry)
                    break
            else:
                groups.append((described, [entry]))
        return tuple(
            EntryAnswer(entries=tuple(entries), outputs=tuple(_claim(item) for item in described))
            for described, entries in groups
        )


def _alike(one: list[_Described], other: list[_Described]) -> bool:
    if len(one) != len(other):
        return False
    return all(a[2] is not None and a[:5] == b[:5] and a[5] == b[5] for a, b in zip(one, other, strict=True))


def _claim(described: _Described) -> OutputClaim:
    path, kind, dtype, shape, strides, rest = described
    name = "torch.Tensor" if kind is torch.Tensor else f"{kind.__module__}.{kind.__qualname__}"[:160]
    if dtype is not None:
        return OutputClaim(
            path=path[:200], type=name, dtype=dtype_name(dtype), shape=shape, strides=strides, device=str(rest)
        )
    if isinstance(rest, torch.Tensor):
        return OutputClaim(path=path[:200], type=f"{name} ({rest.layout})"[:200])
    value: ScalarNode | None
    try:
        value = encode_scalar(rest)
    except Unsupported:
        value = None
    return OutputClaim(path=path[:200], type=name, value=value)

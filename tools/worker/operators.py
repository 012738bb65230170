"""Which operators of torch a traced forward calls, and in which precisions. Runs in the candidate's own process."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._C._profiler import _ExperimentalConfig  # pyright: ignore[reportPrivateUsage]  # the profiler's own switch
from torch.utils._python_dispatch import TorchDispatchMode

PLUMBING: Final = frozenset({
    "alias", "arange", "as_strided_", "clone", "contiguous", "copy_", "detach", "detach_", "empty", "empty_like",
    "empty_permuted", "empty_strided", "fill_", "full", "full_like", "is_pinned", "lift_fresh", "new_empty",
    "new_empty_strided", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "pin_memory", "_pin_memory",
    "record_stream", "resize_", "result_type", "scalar_tensor", "set_", "squeeze_", "t_", "_to_copy", "transpose_",
    "unsqueeze_", "zero_", "zeros", "zeros_like", "_reshape_alias", "_unsafe_view",
})  # fmt: skip
"""Memory, views of it and copies: what every candidate needs around kernels of its own. Views are told by torch."""
_DESCRIBED: Final = ("aten::", "prim::", "prims::", "profiler::")
"""Libraries whose operators are told from plumbing by name, or end in such."""
_ALL: Final = torch._C._dispatch_get_all_op_names()  # pyright: ignore[reportPrivateUsage]  # torch tells it nowhere else
_BESIDE: Final = frozenset(name.partition(".")[0] for name in _ALL if not name.startswith(_DESCRIBED))
"""Operators of torch's other libraries (oneDNN, quantized, …), before a candidate can have added its own."""
READING: Final = frozenset({"item", "is_nonzero", "_local_scalar_dense"})
"""A copy of one number to the host."""
_COMPILED: Final = "Torch-Compiled Region"
MOST_NAMES: Final = 40
MOST_CHARS: Final = 80


class OperatorRecord(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Counts the operators that are dispatched while it is entered, but for plumbing."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self._calls: Counter[str] = Counter()
        self._precisions: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Of torch: passes the call on."""
        made = func(*args, **(kwargs or {}))
        library, _, name = func._schema.name.partition("::")
        beside = func._schema.name in _BESIDE
        if beside or (library == "aten" and not func.is_view and name not in PLUMBING | READING):
            self._calls[func._schema.name if beside else name] += 1
            first = next((a for a in args if isinstance(a, torch.Tensor) and a.dtype.is_floating_point), None)
            if first is not None:
                self._precisions.add(str(first.dtype).removeprefix("torch."))
        return made

    def names(self) -> tuple[str, ...]:
        """The operators, most often called first; bounded."""
        return tuple(name[:MOST_CHARS] for name, _ in self._calls.most_common(MOST_NAMES))

    def precisions(self) -> tuple[str, ...]:
        """Floating-point types that they computed in."""
        return tuple(sorted(self._precisions))


class Below:
    """What torch's profiler saw: also what goes past the dispatcher's modes, and what other threads did."""

    def __init__(self) -> None:
        """Not started."""
        self.profiler: Any = torch.autograd.profiler.profile(use_cpu=True, experimental_config=_all_threads())

    def names(self) -> tuple[str, ...]:
        """The operators that computed; bounded."""
        rows: list[Any] = sorted(self.profiler.key_averages(), key=lambda row: -int(row.count))
        keys = [str(row.key) for row in rows]
        found = [
            key.removeprefix("aten::")
            for key in keys
            if key in _BESIDE or (key.startswith("aten::") and _computes(key.removeprefix("aten::")))
        ]
        if any(key.startswith(_COMPILED) for key in keys):
            found.insert(0, "compile")  # its code is torch's, though no operator is called
        return tuple(name[:MOST_CHARS] for name in found)[:MOST_NAMES]


@contextmanager
def closely_watched() -> Generator[Below, None, None]:
    """While entered, every operator of torch in this process is noted; the names are there afterwards."""
    below = Below()
    with below.profiler:
        yield below


def _all_threads() -> Any:
    """The profiler's switch for threads beside the one that starts it; None where this torch has none."""
    try:
        return _ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        return None


def _computes(name: str) -> bool:
    packet: Any = getattr(torch.ops.aten, name, None)
    if packet is None or name in PLUMBING | READING:
        return False
    return not any(getattr(packet, overload).is_view for overload in packet.overloads())

"""Which operators of torch a traced forward calls, and in which precisions. Runs in the candidate's own process."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._C._profiler import _ExperimentalConfig  # pyright: ignore[reportPrivateUsage]  # the profiler's own switch
from torch.utils._python_dispatch import TorchDispatchMode

PLUMBING: Final = frozenset({
    "alias", "arange", "clone", "contiguous", "copy_", "detach", "empty", "empty_like", "empty_strided", "fill_",
    "full", "full_like", "lift_fresh", "new_empty", "new_empty_strided", "new_full", "new_zeros", "ones", "ones_like",
    "resize_", "scalar_tensor", "set_", "_to_copy", "zero_", "zeros", "zeros_like", "_reshape_alias", "_unsafe_view",
})  # fmt: skip
"""Memory, views of it and copies: what every candidate needs around kernels of its own. Views are told by torch."""
READING: Final = frozenset({"item", "is_nonzero", "_local_scalar_dense"})
"""A copy of one number to the host."""
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
        if library == "aten" and not func.is_view and name not in PLUMBING | READING:
            self._calls[name] += 1
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
        found = [str(row.key).removeprefix("aten::") for row in rows if str(row.key).startswith("aten::")]
        return tuple(name[:MOST_CHARS] for name in found if _computes(name))[:MOST_NAMES]


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

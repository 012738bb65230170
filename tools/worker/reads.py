"""Counts the bytes of some tensors that a reference's forward reads: of a table that is looked up what is fetched."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelgate.tools.worker.flops import uncompiled

FETCHING: Final = frozenset({
    "embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "gather", "index", "index_select",
    "masked_select", "take",
})  # fmt: skip
"""Operators that read of their first tensor as much as they give back."""


@uncompiled
class BytesRead(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """While active, adds up what operators read of some tensors, of each at most all of it."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        """Nothing read yet. Tensors of one storage count as one."""
        super().__init__()  # type: ignore[no-untyped-call]  # of torch  # pyright: ignore[reportUnknownMemberType]
        self._most: dict[int, int] = {}
        self._read: dict[int, int] = {}
        for tensor in tensors:
            key = _storage(tensor)
            size = min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
            self._most[key] = max(size, self._most.get(key, 0))

    def total(self) -> int:
        """Bytes."""
        return sum(min(read, self._most[key]) for key, read in self._read.items())

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operator; what only looks at memory in another way reads nothing."""
        result = func(*args, **(kwargs or {}))
        if func.is_view:
            return result
        given = [leaf for leaf in tree_leaves((args, dict(kwargs or {}))) if isinstance(leaf, torch.Tensor)]
        fetched = sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(result) if _is_tensor(leaf))
        for position, tensor in enumerate(given):
            key = _storage(tensor)
            if key in self._most:
                size = tensor.numel() * tensor.element_size()
                some = position == 0 and func._schema.name.partition("::")[2] in FETCHING
                self._read[key] = self._read.get(key, 0) + (min(size, fetched) if some else size)
        return result


def _storage(tensor: torch.Tensor) -> int:
    # A fake tensor has no address; this names the storage all the same.
    return int(tensor.untyped_storage()._cdata)  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor)

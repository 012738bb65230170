"""Memory that the referee lends to the candidate, behind a small port: memfd and mmap on the CPU (`cuda_lending`: GPU).

A parcel is one piece of shared memory that holds several tensors, each storage aligned. It is new for each loan, so
its values and pages are new too. Nothing that lies in it is trusted; expected outputs never lie in it.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from kernelgate.tools.worker.protocol import Parcel, View
from kernelgate.tools.worker.structure import dtype_name, dtype_of

ALIGNMENT_BYTES: Final = 512
"""Of each storage: what Triton specialises on is then the same for each loan."""
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""Without them the borrower could shrink the file under the referee's feet, which is SIGBUS."""
# Pages are there before the first call, so that no call pays for faulting them in.
_MAP_FLAGS: Final = mmap.MAP_SHARED | mmap.MAP_POPULATE


@dataclass(frozen=True)
class Loan:
    """A parcel as the lender holds it."""

    parcel: Parcel
    descriptor: int
    """To be sent beside the parcel's description, then closed with `close_descriptor`."""
    tensors: tuple[torch.Tensor, ...]
    """The lender's view of the same memory, one per view of the parcel."""
    memory: object = None
    """What owns the memory where the tensors do not: keep the loan as long as they are used."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What is sent beside the parcel's description; nothing where it says all."""
        return (self.descriptor,) if self.descriptor >= 0 else ()

    def close_descriptor(self) -> None:
        """After the hand-over; both mappings stay."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


class Lender(Protocol):
    """Lends tensors to another process; one implementation per device kind."""

    def lend(self, copied: Sequence[torch.Tensor], blank: Sequence[torch.Tensor]) -> Loan:
        """New shared memory with copies of the first (strides and shared storages kept), then room for the second.

        The room is contiguous, of the same shapes and dtypes, and not yet poisoned. Raises OSError or MemoryError.
        """
        ...


class Borrower(Protocol):
    """Opens what a lender lent, in the other process."""

    def open(self, parcel: Parcel, descriptor: int) -> tuple[torch.Tensor, ...]:
        """The tensors of a parcel; closes the descriptor. Raises OSError or ValueError."""
        ...

    def release(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Give back what `open` returned: these tensors must not be used any more."""
        ...


class MemfdLender:
    """Lends sealed memfds to a process on the same CPU."""

    def lend(self, copied: Sequence[torch.Tensor], blank: Sequence[torch.Tensor]) -> Loan:
        """See `Lender`. Inputs are mapped writable: a candidate that writes into them gets a verdict, not a crash."""
        views, end = laid_out(copied, blank)
        size = max(end, mmap.PAGESIZE)
        descriptor = os.memfd_create("lent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            parcel = Parcel(size_bytes=size, views=views)
            memory = _mapped(parcel, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        tensors = _tensors(parcel, memory)
        done: set[int] = set()
        for source, mine, view in zip(copied, tensors, views, strict=False):
            if view.storage_start_bytes not in done and view.storage_bytes:
                done.add(view.storage_start_bytes)
                storage_bytes(mine).copy_(storage_bytes(source))
        return Loan(parcel=parcel, descriptor=descriptor, tensors=tensors)


class MemfdBorrower:
    """Maps what a `MemfdLender` lent."""

    def open(self, parcel: Parcel, descriptor: int) -> tuple[torch.Tensor, ...]:
        """See `Borrower`."""
        try:
            if os.fstat(descriptor).st_size < parcel.size_bytes:
                raise ValueError("a parcel larger than its memory")
            memory = _mapped(parcel, descriptor)
        finally:
            os.close(descriptor)
        return _tensors(parcel, memory)

    def release(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """See `Borrower`. The mapping goes with the last tensor on it."""


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage as a flat uint8 tensor on the same memory."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def aligned(size_bytes: int) -> int:
    """The next multiple of `ALIGNMENT_BYTES`."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def laid_out(copied: Sequence[torch.Tensor], blank: Sequence[torch.Tensor]) -> tuple[tuple[View, ...], int]:
    """Where each tensor goes in a parcel, and the end of the last, bytes."""
    views: list[View] = []
    starts: dict[int, int] = {}
    end = 0
    for tensor in copied:
        storage = tensor.untyped_storage()
        key = storage._cdata  # pyright: ignore[reportPrivateUsage]  # how torch tells that two tensors share a storage
        if key not in starts:
            starts[key] = end
            end += aligned(storage.nbytes())
        views.append(
            View(
                dtype=dtype_name(tensor.dtype),
                shape=tuple(tensor.shape),
                strides=tensor.stride(),
                storage_start_bytes=starts[key],
                storage_bytes=storage.nbytes(),
                offset=int(tensor.storage_offset()),
            )
        )
    for tensor in blank:
        size = tensor.numel() * tensor.element_size()
        views.append(
            View(
                dtype=dtype_name(tensor.dtype),
                shape=tuple(tensor.shape),
                strides=_contiguous_strides(tuple(tensor.shape)),
                storage_start_bytes=end,
                storage_bytes=size,
                offset=0,
            )
        )
        end += aligned(size)
    return tuple(views), end


def _contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _mapped(parcel: Parcel, descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, parcel.size_bytes, _MAP_FLAGS, mmap.PROT_READ | mmap.PROT_WRITE)


def _tensors(parcel: Parcel, memory: mmap.mmap) -> tuple[torch.Tensor, ...]:
    """One tensor per view; their storages keep the mapping alive. No tensor is a view of another."""
    storages: dict[int, torch.UntypedStorage] = {}
    tensors: list[torch.Tensor] = []
    for view in parcel.views:
        start = view.storage_start_bytes
        if view.storage_bytes and start not in storages:
            flat = torch.frombuffer(memory, dtype=torch.uint8, count=view.storage_bytes, offset=start)
            storages[start] = flat.untyped_storage()
        tensor = torch.empty(0, dtype=dtype_of(view.dtype), device="cpu")
        if view.storage_bytes:
            tensor.set_(storages[start], view.offset, view.shape, view.strides)
        else:
            tensor = tensor.as_strided(view.shape, view.strides)
        tensors.append(tensor)
    return tuple(tensors)

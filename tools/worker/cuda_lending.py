"""Memory lent on a GPU: one allocation of the driver's for each loan, opened in the other process by its handle.

An IPC handle opens the whole allocation that an address lies in. So a loan is an allocation of its own, in whole pages
of 2 MiB: the driver puts smaller ones into pages that it shares out, and torch's allocator does so with larger ones.

Not torch's own sharing: it keeps memory until the borrower has counted a reference down in a file in shared memory,
which a killed borrower never does, and which a hostile one may count as it likes. Here the lender alone frees.
"""

from collections.abc import Sequence
from typing import Final

import torch

from kernelgate.tools.worker.cuda_driver import CUDA_DEVICE, Driver
from kernelgate.tools.worker.lending import Loan, laid_out, storage_bytes
from kernelgate.tools.worker.protocol import Parcel
from kernelgate.tools.worker.structure import dtype_of

PAGE_BYTES: Final = 2 << 20
NO_DESCRIPTOR: Final = -1


class DeviceMemory:
    """An allocation that lives as long as this object."""

    def __init__(self, driver: Driver, size_bytes: int) -> None:
        """Whole pages; raises `DeviceMemoryFull`."""
        self.size_bytes = -(-max(size_bytes, 1) // PAGE_BYTES) * PAGE_BYTES
        self._driver = driver
        self._address = 0
        self._address = driver.allocate(self.size_bytes)

    @property
    def address(self) -> int:
        """Of the first byte."""
        return self._address

    def free(self) -> None:
        """Give it back now; again does nothing. Tensors on it must not be used any more."""
        address, self._address = self._address, 0
        if address:
            self._driver.free(address)

    def __del__(self) -> None:
        self.free()


class CudaLender:
    """Lends device memory to a process on the same GPU."""

    def __init__(self, driver: Driver) -> None:
        """In a process whose CUDA was started."""
        self._driver = driver

    def lend(self, copied: Sequence[torch.Tensor], blank: Sequence[torch.Tensor]) -> Loan:
        """See `Lender`. The memory is freed with the loan, whatever the borrower still holds.

        The copies are enqueued, not awaited: synchronise before the parcel is sent. Raises `DeviceMemoryFull`.
        """
        views, end = laid_out(copied, blank)
        memory = DeviceMemory(self._driver, end)
        parcel = Parcel(size_bytes=memory.size_bytes, views=views, handle=self._driver.export(memory.address).hex())
        tensors = _tensors(parcel, memory.address)
        done: set[int] = set()
        for source, mine, view in zip(copied, tensors, views, strict=False):
            if view.storage_start_bytes not in done and view.storage_bytes:
                done.add(view.storage_start_bytes)
                storage_bytes(mine).copy_(storage_bytes(source))
        return Loan(parcel=parcel, descriptor=NO_DESCRIPTOR, tensors=tensors, memory=memory)


class CudaBorrower:
    """Opens what a `CudaLender` lent."""

    def __init__(self, driver: Driver) -> None:
        """In a process whose CUDA was started."""
        self._driver = driver
        self._open: list[tuple[tuple[torch.Tensor, ...], int]] = []

    def open(self, parcel: Parcel, descriptor: int) -> tuple[torch.Tensor, ...]:
        """See `Borrower`; there is no descriptor."""
        address = self._driver.open(bytes.fromhex(parcel.handle))
        tensors = _tensors(parcel, address)
        self._open.append((tensors, address))
        return tensors

    def release(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """See `Borrower`. Waits for the device, then unmaps."""
        for index, (opened, address) in enumerate(self._open):
            if opened is tensors:
                torch.cuda.synchronize()
                del self._open[index]
                self._driver.close(address)
                return


def _tensors(parcel: Parcel, address: int) -> tuple[torch.Tensor, ...]:
    """One tensor per view, none a view of another; their storages do not own the memory."""
    device = torch.device(CUDA_DEVICE)
    storages: dict[int, torch.UntypedStorage] = {}
    tensors: list[torch.Tensor] = []
    for view in parcel.views:
        start = view.storage_start_bytes
        if start + view.storage_bytes > parcel.size_bytes:
            raise ValueError("a parcel larger than its memory")
        tensor = torch.empty(0, dtype=dtype_of(view.dtype), device=device)
        if view.storage_bytes:
            if start not in storages:
                storages[start] = _storage_at(address + start, view.storage_bytes, device)
            tensor.set_(storages[start], view.offset, view.shape, view.strides)
        else:
            tensor = tensor.as_strided(view.shape, view.strides)
        tensors.append(tensor)
    return tuple(tensors)


def _storage_at(address: int, size_bytes: int, device: torch.device) -> torch.UntypedStorage:
    # Torch's own CUDA graphs make storages over known addresses this way; nothing public does.
    make = torch._C._construct_storage_from_data_pointer  # pyright: ignore[reportPrivateUsage]  # see above
    storage: torch.UntypedStorage = make(address, device, size_bytes)  # type: ignore[assignment]  # said to be a Storage
    return storage

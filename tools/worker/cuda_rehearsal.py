"""Two children behind the walls of referee and candidate: does CUDA start there, and can one open what the other lends?

The rules that decide it (equal users, process numbers, `/proc`, shared memory) are the driver's own and change with it;
so each host is asked.
"""

import json
import socket
import sys
from collections.abc import Callable
from typing import Final

import torch

from kernelgate.tools.worker import frames
from kernelgate.tools.worker.cuda_driver import CUDA_DEVICE, Driver, start_cuda
from kernelgate.tools.worker.cuda_lending import NO_DESCRIPTOR, CudaBorrower, CudaLender
from kernelgate.tools.worker.protocol import Parcel

ELEMENTS: Final = 1 << 16


class RehearsalFailed(Exception):
    """One sentence."""


def lend(sock: socket.socket) -> None:
    """The referee's part. Ends the process with status 1, and its last line says why, if it does not work."""
    _tell_failures(lambda driver: _lend(driver, sock))


def borrow(sock: socket.socket) -> None:
    """The candidate's part."""
    _tell_failures(lambda driver: _borrow(driver, sock))


def _tell_failures(work: Callable[[Driver], None]) -> None:
    try:
        work(start_cuda())
    except Exception as error:  # noqa: BLE001  whatever it is, it is why this host cannot do it
        first = (str(error).strip().splitlines() or [""])[0]
        print(f"{type(error).__name__}: {first}", file=sys.stderr)  # noqa: T201  what the survey reads
        raise SystemExit(1) from None


def _lend(driver: Driver, sock: socket.socket) -> None:
    numbers = torch.arange(ELEMENTS, dtype=torch.float32, device=CUDA_DEVICE)
    loan = CudaLender(driver).lend([numbers], [numbers])
    torch.cuda.synchronize()
    frames.send(sock, {"parcel": loan.parcel.model_dump(mode="json")})
    if frames.receive_plain(sock) is None:
        raise RehearsalFailed("the process that was lent memory could not use it")
    if not torch.equal(loan.tensors[1], 2 * numbers):
        raise RehearsalFailed("lent memory does not hold what the other process wrote")


def _borrow(driver: Driver, sock: socket.socket) -> None:
    message = frames.receive_plain(sock)
    if message is None:
        raise RehearsalFailed("the process that should lend memory ended")
    borrower = CudaBorrower(driver)
    lent = borrower.open(Parcel.model_validate_json(json.dumps(message["parcel"])), NO_DESCRIPTOR)
    lent[1].copy_(2 * lent[0])
    borrower.release(lent)
    frames.send(sock, {"done": True})

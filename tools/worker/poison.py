"""What a lent answer buffer holds before the candidate writes: a secret pattern that no right answer has."""

import random
from dataclasses import dataclass
from typing import Final

import torch

from kernelgate.tools.worker.patterns import count_true

_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
"""Integers that lie over an element of so many bytes; complex128 is two of 8."""
_NAN_BITS: Final = {
    torch.float16: (0x7E00, 0x1FF),
    torch.bfloat16: (0x7FC0, 0x3F),
    torch.float32: (0x7FC00000, 0x3FFFFF),
    torch.float64: (0x7FF8 << 48, (1 << 51) - 1),
}
"""A quiet NaN, and the payload bits that may be drawn at random."""
_SINGLE_NAN: Final = {"float8_e4m3fn": 0xFF, "float8_e5m2": 0xFE, "float8_e4m3fnuz": 0x80, "float8_e5m2fnuz": 0x80}


@dataclass(frozen=True)
class Poison:
    """The pattern of one buffer; drawn by the referee, and read by the candidate at will: it proves nothing."""

    bits: int

    def fill(self, answer: torch.Tensor) -> None:
        """Poison a contiguous buffer."""
        _as_bits(answer).fill_(self.bits)

    def untouched_share(self, answer: torch.Tensor) -> float:
        """Share of the buffer's elements that still are as `fill` left them."""
        bits = _as_bits(answer)
        return count_true(bits == self.bits) / bits.numel() if bits.numel() else 0.0


def draw_poison(dtype: torch.dtype, secret: random.Random) -> Poison:
    """A NaN with a random payload for floats, a random pattern for integers, no truth value for bools."""
    real = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
    dtype = real.get(dtype, dtype)
    if dtype in _NAN_BITS:
        quiet, payload = _NAN_BITS[dtype]
        return Poison(quiet | secret.randrange(1, payload))
    name = str(dtype).removeprefix("torch.")
    if name in _SINGLE_NAN:
        return Poison(_SINGLE_NAN[name])
    if dtype is torch.bool:
        return Poison(secret.randrange(2, 256))
    if dtype.itemsize == 1:
        return Poison(secret.randrange(1, 256))
    width = 8 * min(dtype.itemsize, 8)
    return Poison(secret.randrange(1 << (width - 2), 1 << (width - 1)))


def _as_bits(answer: torch.Tensor) -> torch.Tensor:
    size = answer.element_size()
    if answer.is_complex():
        size //= 2
    each = answer.element_size() // size
    flat = torch.empty(0, dtype=_BITS[size], device=answer.device)
    return flat.set_(answer.untyped_storage(), answer.storage_offset() * each, (answer.numel() * each,), (1,))

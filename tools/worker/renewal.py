"""New values for an input tensor between two timed calls, far cheaper than drawing it again.

Every element of it changes: what a candidate remembers of earlier calls, by address or by part of the content, is wrong
nearly everywhere, and no comparison with an earlier copy can tell it what it need not compute. Blocks change places as
well: of values that stay where they are signs and sizes stay, and with them where the largest are.
"""

import random
from functools import cache
from typing import Final

import torch

from kernelgate.tools.worker.inputs import LEANING_BITS

_MASKS: Final = {
    torch.float64: (torch.int64, (1 << 49) - 1),
    torch.float32: (torch.int32, (1 << 20) - 1 & ~LEANING_BITS),
    torch.float16: (torch.int16, (1 << 7) - 1),
    torch.bfloat16: (torch.int16, (1 << 4) - 1),
}
"""All bits of the fraction but the first three: sign, size and range of a value stay, up to an eighth of it changes.

Not those that show half precision: without them it would pass for float32 where it is timed."""
LEAST_BLOCK: Final = 64
MOST_BLOCKS: Final = 1024
"""Blocks are drawn anew each time, so that they are cut finer call by call; few, as their order must be drawn."""
NOISE_ELEMENTS: Final = {"cpu": 1 << 20, "cuda": 1 << 24}
"""Random bits are made once and used from another place each time."""


def renew(mine: torch.Tensor, lent: torch.Tensor, secret: random.Random, *, continuous: bool) -> None:
    """Give a tensor new values, in the private copy and then in the lent one.

    Args:
        mine: The private copy; fills its storage, no two elements share memory.
        lent: The same in lent memory.
        secret: Where the randomness comes from.
        continuous: Drawn from a density, so that a value close by is as good a draw; otherwise the elements, which
            are independent draws, change places.
    """
    flat = flattened(mine)
    if continuous and mine.dtype in _MASKS:
        _scramble(_blocks_moved(flat, secret), flat, secret)
    else:
        flat.copy_(flat.roll(secret.randrange(1, flat.numel())))
    flattened(lent).copy_(flat)


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in the order in which they lie in memory, of a tensor that fills its storage."""
    return tensor.as_strided((tensor.numel(),), (1,), 0)


def _blocks_moved(flat: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """A copy whose blocks, of a secret size and beginning, stand in a secret order."""
    least = max(LEAST_BLOCK, flat.numel() // MOST_BLOCKS)
    size = secret.randrange(least, 2 * least)
    count = flat.numel() // size
    if count < 2:
        return flat.roll(secret.randrange(max(1, flat.numel())))
    generator = torch.Generator()  # the process-wide one is seeded as the candidate is told
    generator.manual_seed(secret.getrandbits(63))
    order = torch.randperm(count, generator=generator).to(flat.device)
    start = secret.randrange(flat.numel() - count * size + 1)
    end = start + count * size
    moved = torch.empty_like(flat)
    torch.index_select(flat[start:end].view(count, size), 0, order, out=moved[start:end].view(count, size))
    moved[:start].copy_(flat[:start])
    moved[end:].copy_(flat[end:])
    return moved


def _scramble(values: torch.Tensor, flat: torch.Tensor, secret: random.Random) -> None:
    """Put the values into `flat`, each with other low bits of its fraction."""
    bits_type, _ = _MASKS[flat.dtype]
    given, bits = values.view(bits_type), flat.view(bits_type)
    noise = _noise(flat.dtype, flat.device.type)
    step = noise.numel() // 2
    for start in range(0, bits.numel(), step):
        piece = bits[start : start + step]
        shift = secret.randrange(step)
        torch.bitwise_xor(given[start : start + step], noise[shift : shift + piece.numel()], out=piece)


@cache
def _noise(dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random bits under the mask of a dtype, none of them zero; twice as many as are used at a time."""
    bits_type, mask = _MASKS[dtype]
    generator = torch.Generator(device)
    generator.manual_seed(random.SystemRandom().getrandbits(63))
    size = (2 * NOISE_ELEMENTS[device],)
    noise = torch.randint(1, mask + 1, size, dtype=bits_type, device=device, generator=generator)
    return noise.bitwise_and_(mask).clamp_(min=1)

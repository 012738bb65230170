"""New values for an input tensor between two timed calls, far cheaper than drawing it again.

Every element of it changes: what a candidate remembers of earlier calls, by address or by part of the content, is wrong
everywhere, and no comparison with an earlier copy can tell it what it need not compute.
"""

import random
from functools import cache
from typing import Final

import torch

_MASKS: Final = {
    torch.float64: (torch.int64, (1 << 49) - 1),
    torch.float32: (torch.int32, (1 << 20) - 1),
    torch.float16: (torch.int16, (1 << 7) - 1),
    torch.bfloat16: (torch.int16, (1 << 4) - 1),
}
"""All bits of the fraction but the first three: sign, size and range of a value stay, up to an eighth of it changes."""
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
        _scramble(flat, secret)
    else:
        flat.copy_(flat.roll(secret.randrange(1, flat.numel())))
    flattened(lent).copy_(flat)


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in the order in which they lie in memory, of a tensor that fills its storage."""
    return tensor.as_strided((tensor.numel(),), (1,), 0)


def _scramble(flat: torch.Tensor, secret: random.Random) -> None:
    bits_type, _ = _MASKS[flat.dtype]
    bits = flat.view(bits_type)
    noise = _noise(flat.dtype, flat.device.type)
    step = noise.numel() // 2
    for start in range(0, bits.numel(), step):
        piece = bits[start : start + step]
        shift = secret.randrange(step)
        piece.bitwise_xor_(noise[shift : shift + piece.numel()])


@cache
def _noise(dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random bits under the mask of a dtype, none of them zero; twice as many as are used at a time."""
    bits_type, mask = _MASKS[dtype]
    generator = torch.Generator(device)
    generator.manual_seed(random.SystemRandom().getrandbits(63))
    size = (2 * NOISE_ELEMENTS[device],)
    return torch.randint(1, mask + 1, size, dtype=bits_type, device=device, generator=generator)

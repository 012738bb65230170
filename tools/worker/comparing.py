"""Which memory the comparisons of a workload use: the same again, other memory lent with it, or memory lent anew.

In the same memory an answer that was kept by the address of its inputs is wrong; in other memory a pointer is.
"""

import random
from dataclasses import dataclass
from typing import Final

import torch

from kernelgate.tools.worker.structure import tensors_in

PLACES: Final = 2
"""Pool entries of a comparison, where memory allows them: lending costs more than most comparisons."""
FIRST: Final = (0, 0, 1)
"""Whatever is drawn afterwards, memory is used again and changed."""
IN_ONE_PLACE: Final = 3
"""So many comparisons share memory where there is room for one entry only."""
REMEMBERED_BYTES: Final = 64 << 20
"""Expected outputs up to this size are kept for a while, to recognise a replayed answer."""


@dataclass
class Places:
    """Of one workload, in one piece of lent memory."""

    entries: int
    again: bool
    """Whether there is room to use it more than once."""
    uses: int = 0

    def take(self, secret: random.Random) -> int | None:
        """The entry of the next comparison; None: lend anew."""
        self.uses += 1
        if self.uses == 1:
            return 0
        if not self.again or (self.entries == 1 and self.uses > IN_ONE_PLACE):
            return None
        if self.entries == 1:
            return 0
        return FIRST[self.uses - 1] if self.uses <= len(FIRST) else secret.randrange(self.entries)


def remembered(expected: object) -> list[torch.Tensor]:
    """The tensors of an expected answer, if they are small enough to keep."""
    tensors = tensors_in(expected)
    small = sum(tensor.numel() * tensor.element_size() for tensor in tensors) <= REMEMBERED_BYTES
    return tensors if small else []

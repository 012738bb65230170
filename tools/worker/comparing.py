"""Which memory the comparisons of a workload use: the same again, other memory lent with it, or memory lent anew.

In the same memory an answer that was kept by the address of its inputs is wrong; in other memory a pointer is.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

PLACES: Final = 2
"""Pool entries of a comparison, where memory allows them: lending costs more than most comparisons."""
FIRST: Final = (0, 0, 1)
"""Whatever is drawn afterwards, memory is used again and changed."""
IN_ONE_PLACE: Final = 3
"""So many comparisons share memory where there is room for one entry only."""
REMEMBERED: Final = 4
REMEMBERED_BYTES: Final = 16 << 20
"""So many answers of up to this size are kept for a while, to recognise one that is given again."""


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


class Memory:
    """The last answers of a candidate on one workload."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._workload = ""
        self._answers: deque[list[torch.Tensor]] = deque(maxlen=REMEMBERED)

    def of(self, workload: str) -> list[torch.Tensor]:
        """What it answered there before."""
        return [tensor for answer in self._answers for tensor in answer] if workload == self._workload else []

    def keep(self, workload: str, answers: Sequence[torch.Tensor]) -> None:
        """Copy an answer, if it is small enough; those of another workload are forgotten."""
        if workload != self._workload:
            self._workload = workload
            self._answers.clear()
        if sum(tensor.numel() * tensor.element_size() for tensor in answers) <= REMEMBERED_BYTES:
            self._answers.append([tensor.clone() for tensor in answers])

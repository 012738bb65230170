"""Which memory the comparisons of a workload use: the same again, other memory lent with it, or memory lent anew.

In the same memory an answer that was kept by the address of its inputs is wrong; in other memory a pointer is.
"""

import random
from dataclasses import dataclass
from typing import Final

PLACES: Final = 2
"""Pool entries of a comparison, where memory allows them: lending costs more than most comparisons."""
FIRST: Final = (0, 0, 1)
"""Whatever is drawn afterwards, memory is used again and changed."""
IN_ONE_PLACE: Final = 3
"""So many comparisons share memory where there is room for one entry only."""


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

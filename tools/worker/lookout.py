"""Whether answers stood when their calls were said to be done: what is computed behind the clock changes them later."""

import random
from typing import Final

import torch

from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.worker.pool import InputPool, any_true
from kernelgate.tools.worker.protocol import Stage

ELEMENTS: Final = 4_096
"""Of each answer so many elements are looked at in the moment in which its call is said to be done."""


class Lookout:
    """Of one row of calls. The elements that are looked at are drawn for each call."""

    def __init__(self, secret: random.Random, pool: InputPool) -> None:
        """Nothing seen yet."""
        self._secret, self._pool = secret, pool
        self._seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def look(self, index: int) -> None:
        """Note some of each answer of a pool entry as it is now."""
        for answer in self._pool.entries[index].answers.values():
            flat = answer.reshape(-1)
            step = max(1, flat.numel() // ELEMENTS)
            some = flat[self._secret.randrange(step) :: step]
            self._seen.append((some, some.clone()))

    def changed(self) -> bool:
        """Whether anything that was noted is different now."""
        return any_true([(now.clone().view(torch.uint8) != then.view(torch.uint8)).any() for now, then in self._seen])


def too_early(stage: Stage) -> Fault:
    """What an answer that changed afterwards is: the clock was stopped before the work was done."""
    said = "it said that a call was done while its answer was not yet in place: it works behind its calls"
    return Fault(kind="too_early", stage=stage, error=said)

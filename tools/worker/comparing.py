"""Which memory the comparisons of a workload use: the same again, other memory lent with it, or memory lent anew.

In the same memory an answer that was kept by the address of its inputs is wrong; in other memory a pointer is.
"""

import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from kernelgate.tasks.model import Bound, Distribution, Task, Tolerance
from kernelgate.tools.worker.answers import Question
from kernelgate.tools.worker.compare import compare_values, dtype_kind
from kernelgate.tools.worker.patterns import same_bits
from kernelgate.tools.worker.reference import SEED_BITS, HeldWorkload
from kernelgate.tools.worker.structure import leaves

PLACES: Final = 2
"""Pool entries of a comparison, where memory allows them: lending costs more than most comparisons."""
FIRST: Final = (0, 0, 1)
"""Whatever is drawn afterwards, memory is used again and changed."""
IN_ONE_PLACE: Final = 3
"""So many comparisons share memory where there is room for one entry only."""
SAMPLED_ELEMENTS: Final = 1 << 16
"""Of each answer about so many elements are kept, to recognise one that is given again, whatever its size."""
FEWEST_NEAR: Final = 8
"""Fewer numbers than that may be near others by chance."""


@dataclass
class Places:
    """Of one workload, in one piece of lent memory."""

    entries: int
    again: bool
    """Whether there is room to use it more than once."""
    uses: int = 0

    def take(self, secret: random.Random, but: int | None = None) -> int | None:
        """The entry of the next comparison, another one than `but`; None: lend anew."""
        self.uses += 1
        if self.uses == 1:
            return 0
        if not self.again or (self.entries == 1 and self.uses > IN_ONE_PLACE):
            return None
        if self.entries == 1:
            return 0 if but is None else None
        if but is not None:
            return secret.choice([entry for entry in range(self.entries) if entry != but])
        return FIRST[self.uses - 1] if self.uses <= len(FIRST) else secret.randrange(self.entries)


@dataclass(frozen=True)
class Asked:
    """What one comparison asked. With the same seeds it is asked again."""

    distribution: Distribution
    inputs_seed: int
    seed: int
    place: int = 0


@dataclass(frozen=True)
class _Kept:
    """Samples of one answer, by path."""

    expected: dict[str, Any]
    answer: dict[str, torch.Tensor]
    allowed: dict[str, Tolerance | Bound]


class Memory:
    """What a candidate was asked on one workload in this call, and what it answered."""

    def __init__(self, secret: random.Random) -> None:
        """Nothing yet."""
        self._secret = secret
        self._workload = ""
        self._asked: list[Asked] = []
        self._kept: dict[int, _Kept] = {}
        self._starts: dict[str, float] = {}
        """Of the samples, as a part of their step; the same for all answers of a workload, so that they compare."""

    def next_question(self, workload: str, distribution: Distribution, again: int | None) -> Asked:
        """What to ask now; what was asked on another workload is forgotten."""
        if workload != self._workload:
            self._workload = workload
            self._asked, self._kept, self._starts = [], {}, {}
        if again is not None:
            return self._asked[again]
        return Asked(distribution, secrets.randbits(SEED_BITS), self._secret.getrandbits(31))

    def note(self, asked: Asked) -> None:
        """It is asked now."""
        self._asked.append(asked)

    def question(
        self, task: Task, workload: str, asked: Asked, expected: object, held: HeldWorkload, missing: tuple[str, ...]
    ) -> Question:
        """How an answer is judged."""
        return Question(
            task, workload, asked.distribution, expected, self.given_before, held, asked.seed, missing
        )  # fmt: skip

    def keep(self, question: Question, answers: Mapping[str, torch.Tensor], again: int | None = None) -> bool:
        """Remember some of the answer to what was noted last, and of what was expected.

        Returns whether an earlier comparison, `again`, had these values: not all that `get_inputs` does follows a seed.
        """
        known = again is not None and self._was_asked(again, question.expected)
        expected = dict(leaves(question.expected))
        self._kept[len(self._asked) - 1] = _Kept(
            expected={path: self._sample(path, leaf) for path, leaf in expected.items()},
            answer={path: self._sample(path, tensor) for path, tensor in answers.items()},
            allowed={path: question.allowed(path, dtype_kind(tensor.dtype)) for path, tensor in answers.items()},
        )
        return known

    def _was_asked(self, number: int, expected: object) -> bool:
        kept = self._kept.get(number)
        return kept is not None and all(
            self._alike(kept, path, self._sample(path, leaf)) for path, leaf in leaves(expected)
        )

    def given_before(self, path: str, got: torch.Tensor) -> bool:
        """Whether an answer is the one to an earlier comparison, or near what was expected there."""
        sample = self._sample(path, got)
        if sample.numel() < 2 or bool((sample == sample[0]).all()):
            return False
        for kept in self._kept.values():
            if path in kept.answer and same_bits(sample, kept.answer[path]):
                return True
            if sample.numel() >= FEWEST_NEAR and path in kept.allowed and self._alike(kept, path, sample):
                return True
        return False

    def _alike(self, kept: _Kept, path: str, sample: Any) -> bool:
        then = kept.expected.get(path)
        if not isinstance(sample, torch.Tensor) or not isinstance(then, torch.Tensor):
            return bool(sample == then)
        if sample.shape != then.shape or sample.dtype != then.dtype:
            return False
        return compare_values(sample, then, kept.allowed[path]).problem == "none"

    def _sample(self, path: str, leaf: Any) -> Any:
        """Elements at regular places that nobody else knows; a leaf that is no tensor as it is."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        step = max(1, leaf.numel() // SAMPLED_ELEMENTS) | 1  # odd: not the same column of each row
        start = int(self._starts.setdefault(path, self._secret.random()) * min(step, max(1, leaf.numel())))
        return leaf.reshape(-1)[start::step].clone()

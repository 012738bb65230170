"""One row of timed calls of a candidate: its inputs when each call is asked for, and what its outputs were worth."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kernelgate.tasks.model import HIDDEN_DISTRIBUTION, Distribution, Task
from kernelgate.tools.kit.facts import Block, Comparison, Side
from kernelgate.tools.worker.answers import Question, judge_answer, mutated
from kernelgate.tools.worker.control import Busy
from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.lookout import Lookout
from kernelgate.tools.worker.patterns import same_bits
from kernelgate.tools.worker.pool import which_changed
from kernelgate.tools.worker.protocol import OutputClaim, Ran
from kernelgate.tools.worker.ready import ReadyWorkload
from kernelgate.tools.worker.signals import Around

USUAL: Final[Distribution] = "original"
"""What is timed: inputs as the task makes them."""
VERIFIED_OUTPUTS: Final = 2
"""Outputs of a verified row that are compared beside the odd one: each costs a call of the reference."""
ODD_SHARE: Final = 1 / 2
"""Of the rows have an odd call, whether they are verified or not: what an input looks like must not tell which are."""
ODD_SHARE_ALONE: Final = 1 / 3
"""The same of rows of one call, which must then be made again to be timed."""


class TimedRow:
    """The calls of a row, in an order that only the referee knows.

    In some rows one call, drawn secretly, gets inputs of another distribution of the task: what is right only on the
    values that are usually timed is wrong there. In a row of a single call it is the only one. Whether a row is
    verified is drawn apart from that: a candidate that finds only usual inputs learns nothing of who will look.
    """

    def __init__(
        self, task: Task, ready: ReadyWorkload, order: Sequence[int], secret: random.Random, *, verify: bool
    ) -> None:
        """Draws what will be looked at."""
        self._task, self._ready, self._order, self._secret = task, ready, order, secret
        self._verify = verify
        others: list[Distribution] = [distribution for distribution in task.distributions if distribution != USUAL]
        if any(b.distribution == HIDDEN_DISTRIBUTION and b.workload == ready.held.name for b in task.bounds):
            others.append(HIDDEN_DISTRIBUTION)
        share = ODD_SHARE if len(order) > 1 else ODD_SHARE_ALONE
        self._odd = secret.randrange(len(order)) if others and secret.random() < share else -1
        self._distribution: Distribution = secret.choice(others) if others else USUAL
        self.lookout = Lookout(secret, ready.pool)

    @property
    def around(self) -> Around:
        """What is done around each call."""
        return Around(self._at_ready, lambda position: self.lookout.look(self._order[position]))

    def _at_ready(self, position: int) -> None:
        """Give the entry of a call values that nobody has seen, last: what can be read can be computed from."""
        entry = self._ready.pool.entries[self._order[position]]
        entry.poison(self._secret)
        if position == self._odd:
            entry.replace(self._ready.held.draw(self._distribution))
        else:
            entry.refresh(self._secret, self._usual)

    def usual(self, of_each: Sequence[float]) -> list[float]:
        """Of some numbers, one for each call, those of the usual inputs: others may take another time."""
        return [number for position, number in enumerate(of_each) if position != self._odd]

    def judge(self, ran: Ran, seed: int) -> Comparison | None:
        """What became of inputs and, in a verified row, outputs; the inputs are of the usual kind again afterwards."""
        comparison = self._judged_inputs()
        if comparison is None and self._verify:
            comparison = self._judged_outputs(ran, seed)
        if self._odd >= 0:
            self._ready.pool.entries[self._order[self._odd]].replace(self._usual())
        return comparison

    def _usual(self) -> Drawn:
        return self._ready.held.draw(USUAL)

    def _judged_inputs(self) -> Comparison | None:
        fully = set(self._order) if self._verify else set[int]()
        entries = enumerate(self._ready.pool.entries)
        changed = which_changed([(entry, None if index in fully else self._secret) for index, entry in entries])
        for entry in changed:
            entry.put_back()
        return mutated(Question(self._task, self._ready.held.name, USUAL, None)) if changed else None

    def _judged_outputs(self, ran: Ran, seed: int) -> Comparison:
        """The last output, the odd one, and a few drawn now: all were put in place, none knows which is looked at."""
        drawn = self._secret.sample(range(len(self._order)), min(VERIFIED_OUTPUTS - 1, len(self._order)))
        looked_at = {len(self._order) - 1, *drawn, *((self._odd,) if self._odd >= 0 else ())}
        found = [self._judged_output(ran, seed, position) for position in sorted(looked_at)]
        wrong = next((comparison for comparison in found if comparison.problem != "none"), None)
        return wrong or max(found, key=lambda comparison: comparison.worst_abs)

    def _judged_output(self, ran: Ran, seed: int, position: int) -> Comparison:
        index = self._order[position]
        entry = self._ready.pool.entries[index]
        expected = self._ready.held.expect(entry.drawn.arguments, seed)
        distribution = self._distribution if position == self._odd else USUAL
        others = [self._ready.pool.entries[other] for other in self._order if other != index]
        question = Question(
            self._task, self._ready.held.name, distribution, expected,
            given_before=lambda path, got: any(same_bits(got, other.answers[path]) for other in others),
            held=self._ready.held, seed=seed,
        )  # fmt: skip
        return judge_answer(question, entry, claims_of(ran, index))


@dataclass
class BlockTally:
    """What the rows of one block add up to."""

    outside_us: list[float] = field(default_factory=list[float])
    """Of the calls that give samples."""
    comparison: Comparison | None = None
    timed_rows: int = 0
    """Rows that gave samples."""
    _beyond: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    @property
    def wrong(self) -> bool:
        """Whether an output or an input was not as it should be."""
        return self.comparison is not None and self.comparison.problem != "none"

    def note(self, seen_us: Sequence[float], beyond: tuple[float, float], found: Comparison | None) -> None:
        """Add a row of the candidate: its samples, processor time beyond its windows, what was found of its outputs."""
        self.outside_us.extend(seen_us)
        self.timed_rows += bool(seen_us)
        self._beyond.append(beyond)
        if not self.wrong:
            self.comparison = found or self.comparison

    def block(self, side: Side, workload: str) -> Block:
        """The block; of the baseline it has the times alone."""
        times_us = tuple(round(us, 3) for us in self.outside_us)  # the clock's own digits: half as many to send
        return Block(
            side=side,
            workload=workload,
            samples_us=times_us,
            outside_us=times_us,
            rows=max(1, len(self._beyond)),
            unseen_us=sum(unseen for unseen, _ in self._beyond),
            helpers_us=sum(helpers for _, helpers in self._beyond),
            comparison=self.comparison,
        )


def claims_of(ran: Ran, entry: int) -> Sequence[OutputClaim]:
    """What the candidate says of the outputs of a pool entry."""
    return next((answer.outputs for answer in ran.answers if entry in answer.entries), ())


def beyond_windows(before: Busy, after: Busy, walls_us: Sequence[float], threads: int) -> tuple[float, float]:
    """Processor time of a row that its calls' windows do not hold, µs: of all threads, and of all but the first."""
    windows_us = sum(walls_us)
    all_us = (after.all_ns - before.all_ns) / 1e3
    helpers_us = all_us - (after.main_ns - before.main_ns) / 1e3
    return all_us - threads * windows_us, helpers_us - (threads - 1) * windows_us

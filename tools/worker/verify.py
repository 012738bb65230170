"""Judging outputs of timed calls: the last one of a row and a few that are drawn when all are in place."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch

from kernelgate.tasks.model import Task
from kernelgate.tools.kit.facts import Comparison
from kernelgate.tools.worker.answers import Question, judge_answer
from kernelgate.tools.worker.protocol import OutputClaim, Ran
from kernelgate.tools.worker.ready import ReadyWorkload
from kernelgate.tools.worker.structure import leaves

VERIFIED_OUTPUTS: Final = 2
"""Outputs of a verified row that are compared: each costs a call of the reference."""


def judge_drawn_outputs(
    task: Task, ready: ReadyWorkload, order: Sequence[int], ran: Ran, seed: int, secret: random.Random
) -> Comparison:
    """Judge the last output and a few that are drawn now: all were put in place, none knows which is looked at."""
    drawn = secret.sample(range(len(order)), min(VERIFIED_OUTPUTS - 1, len(order)))
    worst: Comparison | None = None
    for position in {len(order) - 1, *drawn}:
        entry = ready.pool.entries[order[position]]
        expected = ready.held.expect(entry.drawn.arguments, seed)
        question = Question(task, ready.held.name, "original", expected)
        found = judge_answer(question, entry, claims_of(ran, order[position]))
        if found.problem != "none":
            before = ready.pool.entries[order[position - 1]]
            previous = ready.held.expect(before.drawn.arguments, seed)
            tensors = [leaf for _, leaf in leaves(previous) if isinstance(leaf, torch.Tensor)]
            return judge_answer(replace(question, previous=tensors), entry, claims_of(ran, order[position]))
        if worst is None or found.worst_abs > worst.worst_abs:
            worst = found
    assert worst is not None
    return worst


def claims_of(ran: Ran, entry: int) -> Sequence[OutputClaim]:
    """What the candidate says of the outputs of a pool entry."""
    return next((answer.outputs for answer in ran.answers if entry in answer.entries), ())

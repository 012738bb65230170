"""Which memory comparisons use."""

import dataclasses
import json
import random

import pytest
import torch
from bench_tasks import task
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tasks.model import Distribution, Task
from kernelgate.tools.worker.answers import Question
from kernelgate.tools.worker.comparing import IN_ONE_PLACE, PLACES, SAMPLED_ELEMENTS, Memory, Places


@given(st.integers(0, 1 << 30), st.integers(3, 40))
def test_of_three_comparisons_some_use_the_same_memory_again_and_some_use_other(seed: int, uses: int) -> None:
    secret = random.Random(seed)
    places = Places(PLACES, again=True)
    taken = [places.take(secret) for _ in range(uses)]
    assert taken[0] == taken[1] != taken[2]
    assert set(taken) == set(range(PLACES))


def test_with_room_for_one_entry_memory_is_lent_anew_after_some_uses() -> None:
    places = Places(1, again=True)
    assert [places.take(random.Random(0)) for _ in range(IN_ONE_PLACE + 1)] == [0] * IN_ONE_PLACE + [None]


@pytest.mark.parametrize("entries", [1, PLACES])
def test_without_room_beside_it_memory_is_used_once(entries: int) -> None:
    places = Places(entries, again=False)
    assert [places.take(random.Random(0)) for _ in range(2)] == [0, None]


@given(st.integers(0, 1 << 30), st.integers(0, PLACES - 1))
def test_values_that_come_again_come_in_other_memory(seed: int, before: int) -> None:
    secret = random.Random(seed)
    places = Places(PLACES, again=True, uses=1)
    assert places.take(secret, but=before) == 1 - before
    assert Places(1, again=True, uses=1).take(secret, but=0) is None, "there is no other: it is lent anew"


def remembering(
    expected: torch.Tensor, answer: torch.Tensor, distribution: Distribution = "normal"
) -> tuple[Memory, Question]:
    memory = Memory(random.Random(0))
    memory.note(memory.next_question("small", distribution, None))
    one = Task.model_validate_json(json.dumps(task()))
    question = Question(one, "small", distribution, expected)
    memory.keep(question, {"": answer})
    return memory, question


@pytest.mark.parametrize("elements", [2, 1000, 20 * SAMPLED_ELEMENTS])
def test_an_answer_of_any_size_is_known_again_and_others_are_not(elements: int) -> None:
    answer = torch.randn(elements, 1)
    memory, _ = remembering(answer + 1, answer)
    assert memory.given_before("", answer.clone())
    assert not memory.given_before("", torch.randn(elements, 1))
    assert not memory.given_before("[1]", answer.clone()), "of another output nothing is known"


def test_an_answer_near_to_what_was_expected_before_is_known_too() -> None:
    expected = torch.randn(64, 64)
    memory, _ = remembering(expected, torch.zeros(64, 64))
    assert memory.given_before("", expected * (1 + 1e-6))
    assert not memory.given_before("", expected * 1.01)


def test_one_constant_tells_of_no_earlier_answer() -> None:
    constant = torch.full((8, 8), 0.25)
    memory, _ = remembering(constant, constant)
    assert not memory.given_before("", constant.clone())


def test_not_a_number_is_known_again() -> None:
    answer = torch.tensor([1.0, float("nan"), 3.0])
    memory, _ = remembering(torch.randn(3), answer)
    assert memory.given_before("", answer.clone())


def test_of_another_workload_nothing_is_remembered() -> None:
    answer = torch.randn(8, 8)
    memory, _ = remembering(answer, answer)
    memory.next_question("large", "normal", None)
    assert not memory.given_before("", answer)


def test_the_same_question_has_the_same_seeds_and_is_known_by_what_is_expected() -> None:
    expected = torch.randn(8, 8)
    memory, question = remembering(expected, expected)
    first = memory.next_question("small", "uniform", 0)
    assert (first, first.distribution) == (memory.next_question("small", "normal", 0), "normal")
    assert memory.next_question("small", "normal", None).inputs_seed != first.inputs_seed
    assert memory.keep(question, {"": expected}, again=0)
    assert not memory.keep(dataclasses.replace(question, expected=torch.randn(8, 8)), {"": expected}, again=0)

"""Which memory comparisons use."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.worker.comparing import IN_ONE_PLACE, PLACES, Places


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

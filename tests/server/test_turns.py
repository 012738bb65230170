"""Who is next on a device: no account keeps another waiting for more than the calls under way."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.server.turns import Ticket, Turns

CALLS = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(0.01, 5.0), st.sampled_from(["ask", "end", "give up"])), max_size=60
)


def test_calls_of_one_account_follow_each_other_as_they_came() -> None:
    turns = Turns(1)
    tickets = [turns.ask("a") for _ in range(4)]
    for ticket in tickets:
        assert [other.granted for other in tickets] == [other.number <= ticket.number for other in tickets]
        ticket.done(1.0)
    assert all(ticket.granted for ticket in tickets)


def test_one_call_of_another_account_waits_for_none_of_a_hundred_that_were_there_before() -> None:
    turns = Turns(1)
    many = [turns.ask("many") for _ in range(100)]
    one = turns.ask("one")
    assert many[0].granted
    assert not one.granted
    many[0].done(1.0)
    assert one.granted
    assert not many[1].granted


def test_accounts_share_the_seconds_of_a_device_and_not_its_calls() -> None:
    turns, had = Turns(1), {"short": 0.0, "long": 0.0}
    takes = {"short": 0.3, "long": 3.0}
    waiting = [turns.ask(account) for account in ("short",) * 200 + ("long",) * 200]
    for _ in range(150):
        ticket = next(ticket for ticket in waiting if ticket.granted)
        waiting.remove(ticket)
        had[ticket.account] += takes[ticket.account]
        ticket.done(takes[ticket.account])
    assert abs(had["short"] - had["long"]) <= max(takes.values()), had


def test_an_account_that_was_idle_has_saved_nothing_up() -> None:
    turns = Turns(1)
    for _ in range(50):
        turns.ask("busy").done(10.0)
    busy = [turns.ask("busy") for _ in range(3)]
    fresh = [turns.ask("fresh") for _ in range(20)]
    order: list[str] = []
    for _ in range(6):
        ticket = next(ticket for ticket in (*busy, *fresh) if ticket.granted)
        (busy if ticket in busy else fresh).remove(ticket)
        order.append(ticket.account)
        ticket.done(10.0)
    assert order.count("busy") == 3, order


def test_who_had_the_device_alone_for_an_hour_owes_nothing_to_one_that_comes_later() -> None:
    turns = Turns(1)
    for _ in range(360):
        turns.ask("early").done(10.0)
    late = [turns.ask("late") for _ in range(20)]
    early = turns.ask("early")
    late[0].done(10.0)
    late[1].done(10.0)
    assert early.granted


@pytest.mark.anyio
async def test_one_that_gives_up_is_told_at_once_and_keeps_nobody_waiting() -> None:
    turns = Turns(1)
    first, second, third = (turns.ask("a") for _ in range(3))
    second.give_up()
    assert not await second.called()
    second.done(0.0)
    first.done(1.0)
    assert await third.called()
    third.give_up()
    assert third.granted, "a turn that has come is not given up"


@given(CALLS, st.integers(1, 3))
def test_whatever_comes_nobody_is_forgotten_and_no_place_is_lost(
    calls: list[tuple[str, float, str]], places: int
) -> None:
    turns, here = Turns(places), deque[Ticket]()
    for account, used_s, what in calls:
        if what == "ask":
            here.append(turns.ask(account))
        elif here:
            ticket = here.popleft() if what == "end" else here.pop()
            if not ticket.granted:
                ticket.give_up()
            ticket.done(used_s if ticket.granted else 0.0)
        assert sum(ticket.granted for ticket in here) == min(places, len(here))

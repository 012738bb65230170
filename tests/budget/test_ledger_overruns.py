"""What outgrows its hold: raised once, as far as purse and deadline carry it; the rest is the house's."""

from pathlib import Path

import pytest
from book_scenario import ENVIRONMENT, TASK, Scenario, purse_adds_up, result_input

from kernelgate.budget.errors import HoldClosed
from kernelgate.budget.model import HOUSE, Amount, Budget, Rung
from kernelgate.budget.outcomes import Extended, Refused


def test_what_was_measured_above_the_hold_is_the_houses(book: Scenario) -> None:
    hold = book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0)
    settled = book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=1.25), result_input(Rung.check))
    assert (settled.charged.cpu_s, settled.overrun_s) == (1.0, 0.25)
    (overrun,) = book.ledger.query("SELECT account_id, cpu_s, hold_seq FROM events WHERE kind = 'overrun'")
    assert overrun == {"account_id": HOUSE, "cpu_s": 0.25, "hold_seq": hold.hold_seq}
    assert purse_adds_up(book)


@pytest.mark.parametrize("judged", [True, False])
def test_work_that_outlasts_its_hold_is_the_houses_too_whether_it_was_judged_or_not(
    book: Scenario, judged: bool
) -> None:
    hold = book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0, work_s=2.0)
    measured = Amount(calls=1, cpu_s=0.5, work_s=7.25)
    if judged:
        settled = book.ledger.settle(hold.hold_seq, measured, result_input(Rung.check))
    else:
        settled = book.ledger.settle_unjudged(hold.hold_seq, measured, "cancelled")
    assert (settled.charged.work_s, settled.overrun_s, settled.purse.settled.work_s) == (2.0, 0.0, 2.5)
    (overrun,) = book.ledger.query("SELECT account_id, cpu_s, work_s, hold_seq FROM events WHERE kind = 'overrun'")
    assert overrun == {"account_id": HOUSE, "cpu_s": 0.0, "work_s": 5.25, "hold_seq": hold.hold_seq}
    (charge,) = book.ledger.query("SELECT work_s, overrun_work_s FROM charges WHERE rung = 'check'")
    assert charge == {"work_s": 2.0, "overrun_work_s": 5.25}
    assert purse_adds_up(book)


def test_a_hold_is_extended_once_and_settled_up_to_the_sum(book: Scenario) -> None:
    hold = book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0)
    extended = book.ledger.extend(hold.hold_seq, Amount(cpu_s=4.0, work_s=3.0))
    assert isinstance(extended, Extended)
    assert extended.hold == Amount(calls=1, cpu_s=5.0, work_s=4.0) == book.ledger.held(hold.hold_seq)
    assert (extended.purse.open.device_s, extended.purse.open.work_s) == (5.0, 4.0)
    with pytest.raises(HoldClosed, match="extended before"):
        book.ledger.extend(hold.hold_seq, Amount(cpu_s=1.0))
    settled = book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=4.5, work_s=4.0), result_input(Rung.check))
    assert (settled.charged.cpu_s, settled.charged.work_s, settled.overrun_s) == (4.5, 4.0, 0.0)
    assert book.ledger.query("SELECT seq FROM events WHERE kind = 'overrun'") == []
    assert purse_adds_up(book)


def test_an_extension_takes_what_is_left_and_is_refused_when_nothing_is(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db", budget=Budget(device_s=3.0))
    first = book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0)
    second = book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0)
    extended = book.ledger.extend(first.hold_seq, Amount(cpu_s=5.0))
    assert isinstance(extended, Extended)
    assert extended.hold.cpu_s == 2.0
    refused = book.ledger.extend(second.hold_seq, Amount(cpu_s=5.0))
    assert isinstance(refused, Refused)
    assert refused.kind == "purse"
    assert purse_adds_up(book)


@pytest.mark.parametrize(("budget", "kind"), [(Budget(device_s=0.3), "purse"), (Budget(deadline_s=1.3), "deadline")])
def test_an_extension_is_refused_by_what_is_used_up_and_says_which(tmp_path: Path, budget: Budget, kind: str) -> None:
    book = Scenario(tmp_path / "book.db", budget=budget)
    candidate = book.climb(Rung.compile)
    holds = [book.hold(candidate, Rung.check, cpu_s=s, work_s=s) for s in (0.1, 0.2)]
    if kind == "deadline":
        holds.append(book.hold(candidate, Rung.check, work_s=9.0))
    refused = book.ledger.extend(holds[-1].hold_seq, Amount(cpu_s=1.0, work_s=1.0))
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.why.startswith(f"Hold {holds[-1].hold_seq} cannot be raised: 0.0")) == (kind, True)
    assert purse_adds_up(book)


def test_a_rest_of_rounding_is_not_taken_for_time(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db", budget=Budget(device_s=1.0))
    candidate = book.climb(Rung.compile)
    book.ledger.settle_unjudged(book.hold(candidate, Rung.check).hold_seq, Amount(calls=1, cpu_s=0.3), "cancelled")
    held = book.hold(candidate, Rung.check, cpu_s=0.7)
    assert held.purse.device_s_left == 0.0  # and not 1.0 - 0.7 - 0.3 in floating point
    assert book.refused(candidate, Rung.check).kind == "purse"
    assert isinstance(book.ledger.extend(held.hold_seq, Amount(cpu_s=1.0)), Refused)


def test_a_price_is_learned_from_what_was_measured_however_little_the_hold_let_be_charged(book: Scenario) -> None:
    hold = book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0, work_s=1.0)
    result = result_input(Rung.check).model_copy(update={"wall_s": 8.0})
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=4.0, work_s=8.0), result)
    price = book.ledger.prices(TASK.digest, ENVIRONMENT.environment_id)[Rung.check]
    assert (price.hold_device_s, price.hold_work_s) == (6.5, 12.5)

"""What the queries of the book say of promotions against the rule, of the cheap rung, and of who paid for what."""

from pathlib import Path

import pytest
from book_scenario import ACCOUNT, ENVIRONMENT, TASK, Scenario, result_input, run_request

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Budget, Rung, Verdict

REASON = "it should win on large rows"


@pytest.fixture
def halving(tmp_path: Path) -> Scenario:
    """A run under halving with c1 as its incumbent, 2x as fast as the baseline."""
    budget = Budget(device_s=100.0, deadline_s=1000.0, override_calls=5)
    book = Scenario(tmp_path / "book.db", rule="halving", budget=budget)
    book.climb(Rung.precise, ratio=2.0)
    return book


def against_the_rule(book: Scenario, ratio: float, verdict: Verdict = Verdict.faster) -> str:
    """A candidate that quick calls clearly slower, promoted with a reason."""
    candidate = book.climb(Rung.quick, verdict=Verdict.clearly_slower, ratio=0.8)
    book.measure(candidate, Rung.precise, verdict, ratio=ratio, override_reason=REASON)
    return candidate.candidate_id


def rows(book: Scenario, view: str) -> list[dict[str, object]]:
    return book.ledger.query(f"SELECT * FROM {view}")


def test_an_override_paid_off_where_the_candidate_beat_all_that_was_settled_before_it(halving: Scenario) -> None:
    against_the_rule(halving, 1.5)
    against_the_rule(halving, 3.0)
    against_the_rule(halving, 0.9, Verdict.slower)
    found = rows(halving, "overrides")
    assert [(row["candidate_id"], row["best_ratio_before"], row["paid_off"]) for row in found] == [
        ("c2", 2.0, 0), ("c3", 2.0, 1), ("c4", 3.0, 0),
    ]  # fmt: skip
    assert {row["reason"] for row in found} == {REASON}
    assert {row["outcome"] for row in found} == {"faster", "slower"}
    assert {row["kind"] for row in halving.ledger.query("SELECT kind FROM events WHERE kind = 'override'")}
    assert rows(halving, "refusals") == []


def test_an_override_that_is_open_or_was_released_neither_paid_off_nor_failed(halving: Scenario) -> None:
    candidate = halving.climb(Rung.quick, verdict=Verdict.clearly_slower, ratio=0.8)
    hold = halving.hold(candidate, Rung.precise, override_reason=REASON)
    assert [(row["outcome"], row["paid_off"]) for row in rows(halving, "overrides")] == [("open", None)]
    halving.ledger.release(hold.hold_seq, "fault_of_ours")
    assert [(row["outcome"], row["paid_off"]) for row in rows(halving, "overrides")] == [("released", None)]
    hold = halving.hold(candidate, Rung.precise, override_reason=REASON)
    halving.ledger.settle_unjudged(hold.hold_seq, Amount(calls=1, cpu_s=0.25), "cancelled")
    (_, cancelled) = rows(halving, "overrides")
    assert (cancelled["outcome"], cancelled["paid_off"], cancelled["cpu_s"]) == ("cancelled", 0, 0.25)


def test_rank_agreement_counts_pairs_that_both_rungs_put_in_the_same_order(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db")
    for quick, precise in ((1.2, 2.0), (1.4, 1.8), (1.6, 3.0), (1.6, 3.05)):
        candidate = book.climb(Rung.quick, ratio=quick)
        book.measure(candidate, Rung.precise, ratio=precise)
    unsettled = book.climb(Rung.quick, ratio=9.0)
    book.measure(unsettled, Rung.precise, Verdict.ambiguous, ratio=9.0)
    (row,) = rows(book, "rank_agreement")
    # c1 before c2 only at precise; c3 and c4 tie at quick, and their precise intervals overlap.
    assert (row["candidates"], row["pairs"], row["agreed_pairs"]) == (4, 6, 4)
    assert row["agreed_share"] == pytest.approx(4 / 6)
    assert (row["certain_pairs"], row["certain_agreed_pairs"], row["certain_agreed_share"]) == (4, 4, 1.0)


def test_a_run_with_one_timed_candidate_has_no_pair_and_no_share(halving: Scenario) -> None:
    (row,) = rows(halving, "rank_agreement")
    assert (row["candidates"], row["pairs"], row["agreed_share"], row["certain_agreed_share"]) == (1, 0, None, None)


def test_what_was_dropped_and_proved_faster_all_the_same_is_listed(halving: Scenario) -> None:
    against_the_rule(halving, 3.0)
    against_the_rule(halving, 0.9, Verdict.slower)
    (row,) = rows(halving, "wrongly_dropped")
    assert (row["candidate_id"], row["proven_run_id"], row["beat_the_best"]) == ("c2", "r1", 1)
    assert (row["clearly_slower_seq"] is None, row["refused_seq"]) == (False, None)


def test_a_refused_source_that_another_run_proved_faster_is_listed_with_that_run(halving: Scenario) -> None:
    source = "# the same in both runs\n"
    dropped = halving.climb(Rung.quick, source, ratio=1.1, spread=0.05)
    refusal = halving.refused(dropped, Rung.precise)
    assert refusal.kind == "rule"
    assert rows(halving, "wrongly_dropped") == []
    halving.run = halving.ledger.start_run(TASK, run_request())
    halving.job_record = halving.job()
    proven = halving.candidate(source, run_id="r2")
    for rung in (Rung.compile, Rung.check, Rung.quick, Rung.precise):
        halving.measure(proven, rung, ratio=1.5)
    (row,) = rows(halving, "wrongly_dropped")
    assert (row["run_id"], row["candidate_id"], row["refused_seq"]) == ("r1", "c2", refusal.seq)
    assert (row["proven_run_id"], row["proven_candidate_id"], row["beat_the_best"]) == ("r2", "c3", 0)


def test_costs_say_who_paid_for_what_and_which_verdicts_took_it(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db")
    book.climb(Rung.check)
    book.climb(Rung.check, verdict=Verdict.wrong_values)
    hold = book.hold(book.climb(Rung.compile), Rung.check, 1.0)
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=1.25, work_s=1.0), result_input(Rung.check))
    book.ledger.record_qualification(TASK, ENVIRONMENT, qualified=True, why="", facts={}, paid=Amount(cpu_s=4.0))
    paid = {row["account_id"]: row for row in rows(book, "cost_per_account")}
    assert (paid[ACCOUNT]["calls_device_s"], paid[ACCOUNT]["charges"], paid[ACCOUNT]["overruns_device_s"]) == (
        2.0,
        6,
        0,
    )
    assert (paid["house"]["overruns_device_s"], paid["house"]["qualifying_device_s"]) == (0.25, 4.0)
    assert (paid["house"]["calls_device_s"], paid["house"]["calibrating_device_s"]) == (0.0, 0.0)
    spent = {row["outcome"]: row for row in rows(book, "cost_per_verdict")}
    assert {outcome: row["cpu_s"] for outcome, row in spent.items()} == {
        "built": 0.0, "correct": 1.5, "wrong_values": 0.5,
    }  # fmt: skip
    assert sum(row["device_share"] for row in spent.values()) == 1.0
    assert (spent["correct"]["charges"], spent["correct"]["candidates"]) == (2, 2)


def test_every_query_reads_an_empty_book(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "book.db") as ledger:
        assert ledger.query("SELECT * FROM rank_agreement") == ledger.query("SELECT * FROM wrongly_dropped") == []

from pathlib import Path

import pytest
from book_scenario import Scenario

from kernelgate.budget.migrations import queries
from kernelgate.budget.model import Rung, Verdict
from kernelgate.budget.report import funnel, leaderboard, savings


@pytest.fixture
def book(tmp_path: Path) -> Scenario:
    book = Scenario(tmp_path / "book.db")
    winner = book.climb(Rung.precise, ratio=2.0)
    book.climb(Rung.precise, ratio=1.2)
    book.climb(Rung.quick, ratio=3.0)
    book.climb(Rung.quick, verdict=Verdict.crashed)
    book.climb(Rung.check, verdict=Verdict.wrong_values)
    book.climb(Rung.compile, verdict=Verdict.build_failed)
    book.refused(book.candidate(parent_id=winner.candidate_id), Rung.precise)
    return book


def test_the_leaderboard_puts_settled_ratios_before_quick_looks(book: Scenario) -> None:
    rows = leaderboard(book.ledger, "r1")
    assert [(row.candidate_id, row.precise_ratio, row.quick_ratio) for row in rows] == [
        ("c1", 2.0, 2.0),
        ("c2", 1.2, 1.2),
        ("c3", None, 3.0),
        ("c4", None, None),
    ]
    assert rows[0].device_s == 1.5
    assert [c.candidate_id for c in book.ledger.candidates("r1", order="best", limit=2)] == ["c1", "c2"]
    assert book.ledger.incumbent("r1").candidate_id == "c1"


def test_the_funnel_counts_who_entered_passed_failed_and_was_refused(book: Scenario) -> None:
    rows = {row.rung: row for row in funnel(book.ledger, "r1")}
    assert [(r, rows[r].entered, rows[r].passed, rows[r].failed, rows[r].refused) for r in Rung] == [
        (Rung.compile, 6, 5, 1, 0),
        (Rung.check, 5, 4, 1, 0),
        (Rung.quick, 4, 3, 1, 0),
        (Rung.precise, 2, 2, 0, 1),
        (Rung.profile, 0, 0, 0, 0),
    ]
    assert rows[Rung.check].device_s == 2.5


def test_savings_are_what_the_timeable_would_have_cost_precisely_less_the_quick_rung(book: Scenario) -> None:
    saved = savings(book.ledger, "r1")
    assert (saved.candidates, saved.never_precise, saved.precise_device_s_median) == (7, 1, 0.5)
    assert (saved.quick_device_s, saved.spent_device_s, saved.saved_device_s) == (2.0, 5.5, 1 * 0.5 - 2.0)


def test_savings_are_not_invented_before_the_first_precise_call(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db")
    book.climb(Rung.quick)
    assert savings(book.ledger, "r1").saved_device_s is None


def test_each_query_is_a_view_that_an_auditor_can_read(book: Scenario) -> None:
    assert sorted(queries()) == [
        "balance", "charges", "cost_per_account", "cost_per_verdict", "funnel", "leaderboard", "lineage", "overrides",
        "quick_vs_precise", "rank_agreement", "refusals", "spending", "wrongly_dropped",
    ]  # fmt: skip
    rows = {name: book.ledger.query(f"SELECT * FROM {name}") for name in queries()}
    (balance,) = rows["balance"]
    assert (balance["left_device_s"], balance["left_precise_calls"], balance["closed"]) == (94.5, 18, 0)
    assert rows["lineage"][-1]["path"] == "c1 > c7"
    assert rows["refusals"][0]["refusal_kind"] == "rung_missing"
    assert {row["within_quick_interval"] for row in rows["quick_vs_precise"]} == {1}
    assert sum(row["cpu_s"] for row in rows["spending"]) == 5.5

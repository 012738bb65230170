from pathlib import Path

import pytest
from book_scenario import ENVIRONMENT, TASK, Scenario, run_request

from kernelgate.budget.errors import UnknownId
from kernelgate.budget.ladder.play import play
from kernelgate.budget.ladder.recorded import recorded_truths, truth_of
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Budget, Rung, Verdict
from kernelgate.budget.records import Environment
from kernelgate.budget.rules import find_rules

RULES = find_rules()


def fast_and_slow(book: Scenario) -> None:
    book.climb(Rung.precise, ratio=1.5)
    book.climb(Rung.check, verdict=Verdict.wrong_values)
    book.climb(Rung.compile, verdict=Verdict.build_failed)
    book.climb(Rung.precise, ratio=2.0, spread=0.05)


def test_a_flat_run_is_read_as_a_truth_with_the_costs_that_were_charged(book: Scenario) -> None:
    fast_and_slow(book)
    found = truth_of(book.ledger, book.run)
    assert (found.stream, found.task, found.device, found.complete) == ("r1 softmax", "softmax", "cpu", True)
    assert [tried.id for tried in found.tried] == ["c1", "c2", "c3", "c4"]
    assert [len(tried.outcomes) for tried in found.tried] == [4, 2, 1, 4]
    last = found.tried[-1].outcomes[-1]
    assert (last.rung, last.verdict, last.ratio, last.low, last.high) == (Rung.precise, Verdict.faster, 2.0, 1.95, 2.05)
    assert last.device_s == 0.5
    played = play(found, RULES["flat"], {})
    assert sum(played.device_s.values()) == pytest.approx(book.ledger.purse("r1").settled.device_s)


def test_a_replay_of_the_recorded_rule_decides_as_the_book_decided(tmp_path: Path) -> None:
    ratios = [1.5, 1.0, 2.0, 1.9, 1.2, 1.95, 2.5, 0.9]
    flat = Scenario(tmp_path / "flat.db", budget=Budget(device_s=1000.0))
    live = Scenario(tmp_path / "live.db", rule="halving", budget=Budget(device_s=1000.0))
    admitted: list[str] = []
    for ratio in ratios:
        flat.climb(Rung.precise, ratio=ratio)
        candidate = live.climb(Rung.quick, ratio=ratio)
        if not live.ledger.admit(live.request(candidate, Rung.precise)).model_dump().get("why"):
            admitted.append(candidate.candidate_id)
            for hold_seq in live.ledger.open_holds("r1"):
                live.ledger.release(hold_seq, "fault_of_ours")
            live.measure(candidate, Rung.precise, ratio=ratio)
    played = play(truth_of(flat.ledger, flat.run), RULES["halving"], {})
    assert list(played.admitted[: len(admitted)]) == admitted


def test_a_parent_is_kept(book: Scenario) -> None:
    first = book.climb(Rung.check)
    child = book.candidate(parent_id=first.candidate_id)
    book.measure(child, Rung.compile, Verdict.build_failed)
    assert [tried.parent for tried in truth_of(book.ledger, book.run).tried] == [None, "c1"]


def test_a_candidate_that_was_not_taken_as_far_as_it_passed_leaves_the_truth_incomplete(book: Scenario) -> None:
    book.climb(Rung.precise)
    book.climb(Rung.quick)
    book.candidate()
    found = truth_of(book.ledger, book.run)
    assert not found.complete
    assert [tried.id for tried in found.tried] == ["c1", "c2"]
    assert play(found, RULES["flat"], {}).partial


def test_the_latest_result_counts_and_all_that_was_paid(book: Scenario) -> None:
    candidate = book.climb(Rung.precise, ratio=1.5)
    book.measure(candidate, Rung.precise, ratio=1.8, cpu_s=0.75)
    (tried,) = truth_of(book.ledger, book.run).tried
    assert (tried.outcomes[-1].ratio, tried.outcomes[-1].device_s) == (1.8, 1.25)


def test_what_the_book_answered_from_another_run_costs_what_that_run_paid(book: Scenario) -> None:
    book.climb(Rung.check, "# same\n")
    book.run = book.ledger.start_run(TASK, run_request())
    again = book.candidate("# same\n", run_id="r2")
    for result_id in (1, 2):
        book.ledger.record_replay(
            account="local", run_id="r2", candidate_id=again.candidate_id, source_result_id=result_id
        )
    (tried,) = truth_of(book.ledger, book.run).tried
    assert [(outcome.rung, outcome.device_s) for outcome in tried.outcomes] == [(Rung.compile, 0.0), (Rung.check, 0.5)]


def test_results_of_another_environment_are_left_out(book: Scenario) -> None:
    elsewhere = book.ledger.record_environment(Environment(facts={"cpu": "other"}))
    candidate = book.climb(Rung.check)
    book.measure(candidate, Rung.check, Verdict.wrong_values, environment_id=elsewhere)
    (tried,) = truth_of(book.ledger, book.run).tried
    assert [outcome.verdict for outcome in tried.outcomes] == [Verdict.built, Verdict.correct]
    assert ENVIRONMENT.environment_id == book.run.environment_id


def test_runs_under_other_rules_are_left_out_and_named(book: Scenario) -> None:
    fast_and_slow(book)
    book.ledger.start_run(TASK, run_request(rule="halving"))
    book.ledger.start_run(TASK, run_request())
    with Ledger.reading(book.path) as reading:
        found = recorded_truths(reading)
        assert [truth.stream for truth in found.truths] == ["r1 softmax"]
        assert found.left_out == (
            "r2 ran under halving: it measured precisely only what that rule let in.",
            "r3 has no candidate with a result.",
        )
        assert recorded_truths(reading, "r2").truths == ()
        with pytest.raises(UnknownId):
            recorded_truths(reading, "r9")


def test_many_runs_under_another_rule_are_one_sentence(book: Scenario) -> None:
    for _ in range(5):
        book.ledger.start_run(TASK, run_request(rule="halving"))
    with Ledger.reading(book.path) as reading:
        told = [sentence for sentence in recorded_truths(reading).left_out if "halving" in sentence]
    assert [sentence.partition(":")[0] for sentence in told] == ["r2, r3, r4 and 2 more ran under halving"]

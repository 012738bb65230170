import json
import sqlite3
import sys
from pathlib import Path

import pytest
from book_scenario import Scenario
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.budget import rules as rules_folder
from kernelgate.budget.audit import audit
from kernelgate.budget.earlier_rules import EARLIER
from kernelgate.budget.errors import LedgerError, RuleNotHere
from kernelgate.budget.model import Budget, Decision, History, Promotion, Rung, Scored, Verdict
from kernelgate.budget.rules import find_rules, halving, replay, rule_of, threshold

RULES = find_rules()


def scored(number: int, ratio: float, spread: float = 0.1, verdict: Verdict = Verdict.undecided) -> Scored:
    return Scored(
        candidate_id=f"c{number}", ratio=ratio, low=ratio - spread, high=ratio + spread, verdict=verdict, seq=number
    )


def ask(number: int, reason: str | None = None) -> Promotion:
    return Promotion(candidate_id=f"c{number}", rung=Rung.precise, override_reason=reason)


def halve(history: History, request: Promotion) -> Decision:
    return halving.decide(history, request, halving.DEFAULTS)


def test_the_rules_are_found_sorted() -> None:
    assert list(RULES) == ["flat", "halving", "threshold"]


def test_a_file_without_a_rule_fails_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hollow.py").write_text("x = 1\n")
    monkeypatch.setattr(rules_folder, "__path__", [*rules_folder.__path__, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with pytest.raises(TypeError, match=r"hollow\.py must define RULE"):
        find_rules()
    sys.modules.pop("kernelgate.budget.rules.hollow", None)


def test_halving_admits_the_best_quarter_and_names_what_the_others_miss() -> None:
    history = History(quick=tuple(scored(n, 1.0 + n / 10) for n in range(1, 9)))
    assert [halve(history, ask(n)).admit for n in range(1, 9)] == [False] * 6 + [True] * 2
    refused = halve(history, ask(1))
    assert "ranks 8 of 8" in refused.why
    assert refused.missing == "A rank 2 or better of 8."
    assert (refused.saw["n"], refused.saw["rank"], refused.saw["cut"]) == (8, 8, 2)


def test_the_best_so_far_is_always_let_in_unless_clearly_slower() -> None:
    assert halve(History(quick=(scored(1, 0.9),)), ask(1)).admit
    slow = halve(History(quick=(scored(1, 0.5, verdict=Verdict.clearly_slower),)), ask(1))
    assert not slow.admit
    assert "clearly slower" in slow.why


def test_ties_go_to_the_older_candidate() -> None:
    history = History(quick=(scored(2, 1.5), scored(1, 1.5), scored(3, 1.5)))
    assert [halve(history, ask(n)).saw["rank"] for n in (1, 2, 3)] == [1, 2, 3]


def test_an_interval_that_overlaps_the_incumbent_is_let_in_twice() -> None:
    quick = (scored(1, 2.0), scored(2, 1.95), scored(3, 1.0))
    incumbent = (scored(1, 2.0, verdict=Verdict.faster),)
    answers = [halve(History(quick=quick, precise=incumbent, overlap_admissions=n), ask(2)).admit for n in (0, 1, 2)]
    assert answers == [True, True, False]
    assert not halve(History(quick=quick, precise=incumbent), ask(3)).admit


def test_an_ambiguous_result_is_no_incumbent() -> None:
    quick = (scored(1, 2.0), scored(2, 1.95), scored(3, 1.0))
    history = History(quick=quick, precise=(scored(1, 2.0, verdict=Verdict.ambiguous),))
    assert not halve(history, ask(2)).admit


def test_an_incumbent_is_overlapped_where_quick_or_precise_says_so() -> None:
    quick = (scored(1, 2.3, 0.05), scored(2, 2.0, 0.05), scored(3, 1.0))
    flattered = History(quick=quick, precise=(scored(1, 2.0, 0.01, Verdict.faster),))
    assert halve(flattered, ask(2)).saw["incumbent_low"] == 1.99
    assert halve(flattered, ask(2)).admit
    belittled = History(quick=quick, precise=(scored(1, 2.6, 0.01, Verdict.faster),))
    assert halve(belittled, ask(2)).saw["incumbent_low"] == pytest.approx(2.25)
    assert not halve(belittled, ask(2)).admit
    assert not halve(belittled, ask(3)).admit


def test_all_are_let_in_until_as_many_were_measured_as_the_bootstrap_says() -> None:
    parameters = {**halving.DEFAULTS, "bootstrap": 3.0}
    quick = tuple(scored(n, 3.0 - n / 2, 0.01) for n in range(1, 5))
    incumbent = (scored(1, 2.5, 0.01, Verdict.faster),)
    for count, admitted in ((1, True), (2, True), (3, True), (4, False)):
        history = History(quick=quick[:count], precise=incumbent)
        decision = halving.decide(history, ask(count), parameters)
        assert decision.admit == admitted
        assert int(decision.saw["rank"]) <= int(decision.saw["cut"]) or not admitted  # type: ignore[arg-type]  # JSON numbers


def ranked_badly(pairs_wrong: bool) -> History:
    """Eight at quick, four of them at precise: in the order of quick, or the other way round."""
    quick = tuple(scored(n, 2.0 - n / 10, 0.01) for n in range(1, 9))
    ratios = {n: 1.0 + n / 10 if pairs_wrong else 2.0 - n / 10 for n in (1, 2, 7, 8)}
    return History(
        quick=quick,
        precise=tuple(scored(n, ratio, 0.01, Verdict.faster) for n, ratio in ratios.items()),
        overlap_admissions=2,
    )


def test_more_are_let_in_where_quick_ranks_badly_and_it_is_said() -> None:
    widened, usual = (halve(ranked_badly(pairs_wrong=wrong), ask(4)) for wrong in (True, False))
    assert (widened.saw["pairs"], widened.saw["disordered"], widened.saw["cut"]) == (6, 6, 4)
    assert widened.admit
    assert "more than usual, for quick ranks badly here: 6 of 6 clear pairs the other way" in widened.why
    assert (usual.saw["pairs"], usual.saw["disordered"], usual.saw["cut"]) == (6, 0, 2)
    assert not usual.admit
    assert "more than usual" not in usual.why


def test_too_few_clear_pairs_widen_nothing_nor_do_those_whose_intervals_overlap() -> None:
    history = ranked_badly(pairs_wrong=True)
    few = History(quick=history.quick, precise=history.precise[:3])
    assert halve(few, ask(4)).saw["cut"] == 2
    wide = tuple(each.model_copy(update={"low": 0.5, "high": 2.5}) for each in history.precise)
    assert halve(History(quick=history.quick, precise=wide), ask(4)).saw["pairs"] == 0
    never = {**halving.DEFAULTS, "wide_eta": 100.0}
    assert halving.decide(history, ask(4), never).saw["cut"] == 2


def test_only_the_latest_precise_results_are_paired() -> None:
    many = tuple(scored(n, 1.0 + n, 0.01, Verdict.faster) for n in range(1, 101))
    decision = halve(History(quick=many, precise=many), ask(1))
    assert decision.saw["pairs"] == halving.LATEST * (halving.LATEST - 1) // 2


def test_a_written_reason_buys_off_a_refusal_while_the_exploration_purse_lasts() -> None:
    quick = (scored(1, 2.0), scored(2, 1.0))
    rich, poor = (History(quick=quick, overrides_left=n) for n in (1, 0))
    bought, empty = halve(rich, ask(2, "another idea")), halve(poor, ask(2, "another idea"))
    assert (bought.admit, bought.overridden) == (True, True)
    assert not empty.admit
    assert "exploration purse is empty" in empty.missing
    assert not halve(rich, ask(1, "not needed")).overridden


def test_the_threshold_looks_at_the_upper_bound() -> None:
    history = History(quick=(scored(1, 0.95, 0.1), scored(2, 0.8, 0.1)))
    assert threshold.decide(history, ask(1), {"min_ratio": 1.0}).admit
    refused = threshold.decide(history, ask(2), {"min_ratio": 1.0})
    assert not refused.admit
    assert refused.missing == "An upper bound of at least 1.000 at quick."


def test_flat_admits_everything() -> None:
    assert RULES["flat"].decide(History(), ask(1), {}).admit


ratios = st.floats(0.01, 50.0)
verdicts = st.sampled_from([Verdict.maybe_faster, Verdict.undecided, Verdict.clearly_slower])
histories = st.builds(
    lambda quick, precise, overlaps, overrides: History(
        quick=tuple(scored(n, r, s, v) for n, (r, s, v) in enumerate(quick, 1)),
        precise=tuple(scored(n, r, s, Verdict.faster) for n, (r, s, _) in enumerate(precise, 1)),
        overlap_admissions=overlaps,
        overrides_left=overrides,
        last_seq=99,
    ),
    st.lists(st.tuples(ratios, st.floats(0.0, 0.5), verdicts), max_size=12),
    st.lists(st.tuples(ratios, st.floats(0.0, 0.5), verdicts), max_size=4),
    st.integers(0, 3),
    st.integers(0, 2),
)


@given(
    st.sampled_from(sorted(RULES)),
    histories,
    st.integers(1, 13),
    st.one_of(st.none(), st.just("why not")),
    st.floats(2.0, 9.0),
)
def test_every_decision_replays_to_itself_even_from_its_text(
    name: str, history: History, number: int, reason: str | None, eta: float
) -> None:
    rule = RULES[name]
    parameters = rule.parameters({"eta": eta} if name == "halving" else {})
    decision = rule.decide(history, ask(number, reason), parameters)
    stored = Decision.model_validate_json(decision.model_dump_json())
    assert replay(stored, RULES) == decision
    assert bool(decision.missing) != decision.admit


@given(histories, st.integers(1, 12))
def test_what_halving_widens_it_lets_in_besides_and_never_instead(history: History, number: int) -> None:
    usual = halving.decide(history, ask(number), {**halving.DEFAULTS, "wide_eta": 100.0})
    assert halve(history, ask(number)).admit >= usual.admit


@given(histories, st.integers(1, 13), st.one_of(st.none(), st.just("why not")))
def test_a_decision_of_version_1_replays_under_version_1(history: History, number: int, reason: str | None) -> None:
    first = EARLIER["halving", 1]
    decision = first.decide(history, ask(number, reason), first.parameters({}))
    assert decision.rule_version == 1
    assert replay(Decision.model_validate_json(decision.model_dump_json()), RULES) == decision


def test_every_earlier_version_is_kept_under_its_name_and_is_older_than_todays() -> None:
    assert list(EARLIER) == [("halving", 1)]
    assert all(version < RULES[name].version for name, version in EARLIER)
    with pytest.raises(RuleNotHere, match="rule halving version 3 is not part of this kernelgate"):
        rule_of("halving", 3, RULES)


@given(histories, st.integers(1, 12))
def test_halving_never_lets_in_a_clearly_slower_candidate_without_a_reason(history: History, number: int) -> None:
    decision = halve(history, ask(number))
    if decision.saw["own_verdict"] == "clearly_slower":
        assert not decision.admit


def test_the_book_asks_the_rule_at_precise_and_the_audit_replays_it(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db", rule="halving", budget=Budget(precise_calls=20))
    best = book.climb(Rung.quick, ratio=2.0)
    book.measure(best, Rung.precise, ratio=2.0)
    middle, worst = book.climb(Rung.quick, ratio=1.95), book.climb(Rung.quick, ratio=1.0)
    overlap = book.hold(middle, Rung.precise)
    assert overlap.decision is not None
    assert overlap.decision.saw["incumbent_id"] == best.candidate_id
    assert book.ledger.history("r1").overlap_admissions == 1
    book.ledger.release(overlap.hold_seq, "fault_of_ours")
    assert book.ledger.history("r1").overlap_admissions == 0
    refused = book.refused(worst, Rung.precise)
    assert refused.kind == "rule"
    assert refused.decision is not None
    book.measure(worst, Rung.precise, Verdict.slower, ratio=0.9, override_reason="a new layout may pay later")
    (override,) = book.ledger.query("SELECT reason, override_calls FROM events WHERE kind = 'override'")
    assert override == {"reason": "a new layout may pay later", "override_calls": 1}
    assert book.ledger.purse("r1").overrides_left == 0
    assert book.refused(worst, Rung.precise, override_reason="once more").kind == "rule"
    report = audit(book.path)
    assert report.ok, report.findings
    assert report.counts["decisions"] == 5


def old_book(path: Path) -> Scenario:
    """A book whose run began under version 1 of halving."""
    book = Scenario(path, rule="halving", budget=Budget(precise_calls=20))
    first = EARLIER["halving", 1]
    # The run's row is append-only for a book's own writers: the trigger is lifted for this one.
    rows = sqlite3.connect(path)
    triggers = rows.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'runs'"
    ).fetchall()
    for name, _ in triggers:
        rows.execute(f"DROP TRIGGER {name}")
    parameters = json.dumps(first.parameters({}), sort_keys=True, separators=(",", ":"))
    rows.execute("UPDATE runs SET rule_version = 1, parameters_json = ?", (parameters,))
    for _, sql in triggers:
        rows.execute(sql)
    rows.commit()
    rows.close()
    return book


def test_a_run_that_began_under_version_1_goes_on_under_it(tmp_path: Path) -> None:
    book = old_book(tmp_path / "book.db")
    ranked = [book.climb(Rung.quick, ratio=3.0 - n / 10, spread=0.01) for n in range(6)]
    admitted = book.hold(ranked[1], Rung.precise)
    assert admitted.decision is not None
    assert (admitted.decision.rule_version, admitted.decision.saw["cut"]) == (1, 2)
    assert book.refused(ranked[2], Rung.precise).kind == "rule"
    findings = [found.what for found in audit(book.path).findings]
    assert not [what for what in findings if "decision" in what], findings


def test_a_run_of_a_version_that_is_not_here_is_told(tmp_path: Path) -> None:
    book = old_book(tmp_path / "book.db")
    candidate = book.climb(Rung.quick)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernelgate.budget.rules.EARLIER", {})
        with pytest.raises(LedgerError, match="rule halving version 1 is not part of this kernelgate"):
            book.ledger.admit(book.request(candidate, Rung.precise))


def test_two_overlap_admissions_are_followed_by_a_refusal_until_the_incumbent_improves(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db", rule="halving")
    book.measure(book.climb(Rung.quick, ratio=2.0), Rung.precise, ratio=2.0)
    near = [book.climb(Rung.quick, ratio=1.95) for _ in range(3)]
    for candidate in near[:2]:
        book.measure(candidate, Rung.precise, Verdict.same, ratio=1.9)
    assert "2 of 2 admissions by overlap are used" in book.refused(near[2], Rung.precise).why
    book.measure(book.climb(Rung.quick, ratio=2.05), Rung.precise, ratio=2.01)
    book.measure(near[2], Rung.precise, ratio=1.9)
    report = audit(book.path)
    assert report.ok, report.findings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from truths import COST_S, broken, timed, truth, wrong

from kernelgate.budget.ladder.compare import Compared, Total, compare, total
from kernelgate.budget.ladder.model import Truth
from kernelgate.budget.ladder.play import play
from kernelgate.budget.model import Rung, Verdict
from kernelgate.budget.rules import find_rules

RULES = find_rules()
PRECISE_S = COST_S[Rung.precise]


def judged(of: Truth, rule: str = "halving", *, budget_device_s: float | None = None, **parameters: float) -> Compared:
    return compare(of, play(of, RULES[rule], parameters, budget_device_s=budget_device_s))


def test_the_flat_rule_regrets_nothing_and_saves_nothing() -> None:
    row = judged(truth(timed("a", 2.0), broken("b"), timed("c", 1.0)), "flat")
    assert (row.regret_pct, row.gpu_s_ratio_flat, row.false_drops) == (0.0, 1.0, ())
    assert (row.candidates, row.correct, row.wall_s) == (3, 2, row.flat_wall_s)
    assert row.false_promotions == ("c",)
    assert row.close_device_s == sum(COST_S.values())


def test_a_rule_that_drops_the_best_is_told_what_it_lost() -> None:
    of = truth(timed("a", 2.0), timed("b", 2.2, quick=1.0), timed("c", 2.01, quick=1.5, spread=0.002), timed("d", 1.0))
    row = judged(of, eta=100, overlap_limit=0)
    assert (row.best, row.best_ratio, row.flat_best, row.flat_best_ratio) == ("a", 2.0, "b", 2.2)
    assert row.regret_pct == pytest.approx(10.0)
    assert row.false_drops == ("b",)
    assert row.false_drops_1pct == ("b",)
    assert row.false_promotions == ()
    assert (row.close_device_s, row.close_wall_s) == (None, None)
    assert row.gpu_s_ratio_flat == pytest.approx(11.0 / (11.0 - 3 * PRECISE_S))


def test_a_drop_within_one_percent_is_a_false_drop_but_none_of_more_than_one_percent() -> None:
    of = truth(timed("a", 2.0, spread=0.001), timed("b", 2.01, quick=1.0, spread=0.001))
    row = judged(of, eta=100, overlap_limit=0)
    assert (row.false_drops, row.false_drops_1pct) == (("b",), ())
    assert row.close_device_s == sum(COST_S.values())


def test_intervals_that_overlap_are_no_false_drop() -> None:
    row = judged(truth(timed("a", 2.0, spread=0.1), timed("b", 2.1, quick=1.0, spread=0.1)), eta=100, overlap_limit=0)
    assert row.regret_pct == pytest.approx(5.0)
    assert row.false_drops == ()


def test_a_best_that_a_truth_cut_short_did_not_time_is_no_regret_and_no_bar() -> None:
    whole = truth(timed("a", 1.6, quick=0.5, quick_verdict=Verdict.clearly_slower), timed("b", 2.0))
    live = play(whole, RULES["halving"], {}).model_copy(update={"live": True})
    cut = whole.tried[1].model_copy(update={"outcomes": whole.tried[1].outcomes[:2]})
    row = compare(truth(whole.tried[0], cut, complete=False), live)
    assert (row.best, row.best_ratio, row.regret_pct, row.false_drops) == ("b", None, None, ())
    assert total([row]).without_regret == 1


def test_what_was_dropped_for_nothing_counts_against_the_baseline() -> None:
    of = truth(timed("a", 1.5, quick=0.5, quick_verdict=Verdict.clearly_slower))
    row = judged(of)
    assert (row.best, row.regret_pct, row.false_drops) == (None, pytest.approx(50.0), ("a",))
    slow = judged(truth(timed("a", 0.5, quick=0.5, quick_verdict=Verdict.clearly_slower)))
    assert (slow.best, slow.regret_pct, slow.false_drops) == (None, 0.0, ())


def test_nothing_correct_leaves_nothing_to_regret() -> None:
    row = judged(truth(broken("a"), wrong("b")))
    assert (row.regret_pct, row.correct, row.best, row.false_drops) == (None, 0, None, ())
    nothing = judged(truth(broken("a")))
    assert nothing.gpu_s_ratio_flat is None
    summed = total([row, nothing])
    assert (summed.regret_pct_mean, summed.regret_pct_max, summed.without_regret) == (None, None, 2)
    assert summed.close_share is None


def test_one_candidate_is_measured_as_flat_measures_it() -> None:
    row = judged(truth(timed("a", 2.0)))
    assert (row.regret_pct, row.gpu_s_ratio_flat, row.best) == (0.0, 1.0, "a")


def test_identical_candidates_are_neither_dropped_falsely_nor_promoted_falsely() -> None:
    row = judged(truth(*(timed(f"k{number}", 2.0) for number in range(9))))
    assert (row.best, row.regret_pct) == ("k0", 0.0)
    assert (row.false_drops, row.false_promotions) == ((), ())


def test_a_budget_that_ended_is_carried_into_rows_and_totals() -> None:
    row = judged(truth(timed("a", 1.0), timed("b", 2.0)), "flat", budget_device_s=3.0)
    assert row.partial
    assert row.regret_pct == pytest.approx(100.0)
    assert total([row]).partial == 1


def test_a_play_of_another_stream_or_of_unknown_candidates_is_refused() -> None:
    of = truth(timed("a", 1.0))
    played = play(of, RULES["flat"], {})
    with pytest.raises(ValueError, match="was played on 'softmax', and the truth is of 'rmsnorm'"):
        compare(truth(timed("a", 1.0), stream="rmsnorm"), played)
    with pytest.raises(ValueError, match="lacks 'a'"):
        compare(truth(timed("b", 1.0)), played)


def test_a_total_is_of_one_rule_alone() -> None:
    of = truth(timed("a", 1.0))
    with pytest.raises(ValueError, match="one rule"):
        total([judged(of), judged(of, "flat")])
    with pytest.raises(ValueError, match="one rule"):
        total([])


def test_orders_of_one_stream_are_resampled_together() -> None:
    of = truth(timed("a", 2.0), timed("b", 1.0), timed("c", 1.0))
    rows = [compare(of, play(of, RULES["halving"], {}, order)) for order in (["a", "b", "c"], ["c", "b", "a"])]
    summed = total(rows)
    assert (summed.streams, summed.plays) == (1, 2)
    assert summed.gpu_s_ratio_flat is not None
    assert summed.gpu_s_ratio_flat.low == summed.gpu_s_ratio_flat.high == summed.gpu_s_ratio_flat.value


def test_a_total_has_the_same_interval_each_time_and_it_holds_the_value() -> None:
    rows = [
        judged(truth(*(timed(f"k{number}", 2 - number / 10) for number in range(size)), stream=f"s{size}"))
        for size in range(1, 7)
    ]
    first, again = total(rows), total(rows)
    assert first == again
    assert first.gpu_s_ratio_flat is not None
    assert first.gpu_s_ratio_flat.low < first.gpu_s_ratio_flat.value < first.gpu_s_ratio_flat.high
    assert first.device_s == sum(row.device_s_total for row in rows)
    assert Total.model_validate_json(first.model_dump_json()) == first


@given(
    st.lists(st.tuples(st.floats(0.2, 9.0), st.floats(0.2, 9.0), st.floats(0.0, 0.2)), min_size=1, max_size=10),
    st.sampled_from(sorted(RULES)),
    st.one_of(st.none(), st.floats(0.0, 30.0)),
)
def test_no_rule_beats_the_truth(rows: list[tuple[float, float, float]], name: str, budget_s: float | None) -> None:
    of = truth(*(timed(f"k{number}", p, q, spread=p * s) for number, (p, q, s) in enumerate(rows)))
    row = judged(of, name, budget_device_s=budget_s)
    assert row.regret_pct is not None
    assert row.regret_pct >= 0.0
    assert set(row.false_drops_1pct) <= set(row.false_drops)
    assert row.gpu_s_ratio_flat is None or row.gpu_s_ratio_flat >= 1.0 - 1e-9
    assert (row.regret_pct <= 1.0 + 1e-9) == (row.close_device_s is not None) or row.best is None
    if row.false_drops_1pct and row.best is not None:
        assert row.regret_pct > 0.99
    assert Compared.model_validate_json(row.model_dump_json()) == row


def test_what_was_not_played_is_no_saving() -> None:
    of = truth(timed("a", 2.0), timed("b", 1.9), timed("c", 1.0))
    ended = judged(of, budget_device_s=5.0)
    assert ended.partial
    assert (ended.gpu_s_ratio_flat, total([ended]).gpu_s_ratio_flat, total([ended]).wall_s_ratio_flat) == (None,) * 3
    whole = judged(of)
    assert (
        total([whole, ended.model_copy(update={"stream": "other"})]).gpu_s_ratio_flat == total([whole]).gpu_s_ratio_flat
    )
    shorter = of.model_copy(update={"complete": False})
    replayed = play(shorter, RULES["halving"], {})
    assert compare(shorter, replayed).gpu_s_ratio_flat is not None, "a replay meets what the truth met"
    assert compare(shorter, replayed.model_copy(update={"live": True})).gpu_s_ratio_flat is None

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from truths import COST_S, WALL_S, broken, outcome, timed, truth, wrong

from kernelgate.budget.ladder.model import Outcome, Played, Tried, Truth
from kernelgate.budget.ladder.play import EXPLORING, Step, play, steps
from kernelgate.budget.model import Rung, Verdict
from kernelgate.budget.rules import find_rules

RULES = find_rules()
ALL_S = sum(COST_S.values())
TO_QUICK_S = ALL_S - COST_S[Rung.precise]


def flat(of: Truth) -> Played:
    return play(of, RULES["flat"], {})


def halved(of: Truth, **parameters: float) -> Played:
    return play(of, RULES["halving"], parameters)


def test_flat_spends_all_that_the_truth_cost_and_finds_its_best() -> None:
    of = truth(timed("a", 1.0), broken("b"), wrong("c"), timed("d", 2.0), timed("e", 1.5))
    played = flat(of)
    assert played.calls == {"compile": 5, "check": 4, "quick": 3, "precise": 3}
    assert played.device_s == {"compile": 0.0, "check": 1.0, "quick": 1.5, "precise": 6.0}
    assert played.wall_s == sum(len(tried.outcomes) for tried in of.tried) * WALL_S
    assert (played.best, played.admitted, played.refused) == ("d", ("a", "d", "e"), ())
    assert [(point.id, point.ratio) for point in played.curve] == [("a", 1.0), ("d", 2.0)]
    assert [point.device_s for point in played.curve] == [ALL_S, 2 * ALL_S + COST_S[Rung.check]]
    assert not played.partial


def test_the_real_rule_is_asked_in_the_order_of_arrival() -> None:
    of = truth(timed("a", 2.0), timed("b", 1.0), timed("c", 1.1), timed("d", 3.0))
    played = halved(of)
    assert played.admitted == ("a", "d")
    assert played.refused == ("b", "c")
    assert played.best == "d"


def test_who_was_refused_is_asked_about_once_more_when_the_stream_is_over_best_first() -> None:
    of = truth(timed("a", 3.0), timed("b", 2.0), timed("c", 2.5), *(timed(f"z{n}", 1.0) for n in range(6)))
    played = halved(of, eta=3)
    assert played.admitted == ("a", "c", "b")
    assert "b" not in played.refused
    assert "c" not in played.refused


def test_an_overlap_with_the_incumbent_is_counted_as_the_book_counts_it() -> None:
    near = [timed(f"n{number}", 1.99 - number / 1000) for number in range(4)]
    slow = [timed(f"s{number}", 1.0) for number in range(3)]
    played = play(truth(timed("a", 2.0), *near, *slow), RULES["halving"], {"eta": 100})
    assert played.admitted == ("a", "n0", "n1")
    unlimited = play(truth(timed("a", 2.0), *near, *slow), RULES["halving"], {"eta": 100, "overlap_limit": 1000})
    assert unlimited.admitted == ("a", "n0", "n1", "n2", "n3")


def test_the_exploration_purse_is_spent_on_the_best_that_was_refused() -> None:
    of = truth(timed("a", 3.0), timed("b", 1.0), timed("c", 1.2), timed("d", 5.0, quick=1.1))
    parameters = {"eta": 100, "overlap_limit": 0}
    assert play(of, RULES["halving"], parameters).admitted == ("a",)
    assert play(of, RULES["halving"], parameters, overrides=1).admitted == ("a", "c")
    explored = play(of, RULES["halving"], parameters, overrides=2)
    assert (explored.admitted, explored.best, explored.refused) == (("a", "c", "d"), "d", ("b",))


def test_a_budget_that_ends_midway_leaves_a_partial_play_within_the_budget() -> None:
    of = truth(timed("a", 1.0), timed("b", 2.0), timed("c", 3.0))
    played = play(of, RULES["flat"], {}, budget_device_s=ALL_S + TO_QUICK_S)
    assert played.partial
    assert (played.best, played.admitted) == ("a", ("a",))
    assert sum(played.device_s.values()) == ALL_S + TO_QUICK_S
    assert not play(of, RULES["flat"], {}, budget_device_s=3 * ALL_S).partial


def test_a_truth_that_was_cut_short_makes_every_play_partial() -> None:
    cut = Tried(id="b", outcomes=timed("b", 2.0).outcomes[:3])
    assert flat(truth(timed("a", 1.0), complete=False)).partial
    played = flat(truth(timed("a", 1.0), cut, timed("c", 1.5)))
    assert played.partial
    assert (played.best, played.admitted) == ("c", ("a", "c"))


def test_a_source_that_comes_twice_costs_what_the_truth_says() -> None:
    first = timed("a", 2.0)
    free = Tried(id="b", outcomes=tuple(each.model_copy(update={"device_s": 0.0}) for each in first.outcomes))
    assert sum(flat(truth(first, free)).device_s.values()) == ALL_S
    assert sum(flat(truth(first, timed("b", 2.0))).device_s.values()) == 2 * ALL_S


def test_twins_are_one_candidate_paid_for_by_the_first_of_them_in_any_order() -> None:
    first, second = timed("a", 2.0), timed("b", 2.0)
    free = tuple(each.model_copy(update={"device_s": 0.0}) for each in second.outcomes)
    of = truth(first, second.model_copy(update={"outcomes": free, "twin_of": "a"}), timed("c", 1.5))
    for order in (None, ("b", "a", "c"), ("b", "c", "a")):
        seen = play(of, RULES["flat"], {}, order)
        assert sum(seen.device_s.values()) == 2 * sum(COST_S.values())
        assert (sum(seen.calls.values()), set(seen.admitted)) == (12, {"a", "b", "c"})
    assert sum(play(of, RULES["flat"], {}, ("b",)).device_s.values()) == sum(COST_S.values())
    # Two candidates at quick, not three: one in two may enter, and c is not in it.
    assert halved(of, eta=1.5, overlap_limit=0).refused == ("c",)


def test_a_candidate_that_fails_at_precise_is_no_incumbent() -> None:
    failed = Tried(id="a", outcomes=(
        *timed("a", 9.0).outcomes[:3], outcome(Rung.precise, Verdict.wrong_values),
    ))  # fmt: skip
    played = flat(truth(failed, timed("b", 1.0), timed("c", 9.0, verdict=Verdict.ambiguous)))
    assert played.best == "b"
    assert played.admitted == ("a", "b", "c")


def test_nothing_correct_leaves_no_best() -> None:
    played = halved(truth(broken("a"), wrong("b")))
    assert (played.best, played.curve, played.partial) == (None, (), False)


@pytest.mark.parametrize("order", [["a", "a"], ["a", "z"]])
def test_an_order_that_is_not_of_the_truth_is_told(order: list[str]) -> None:
    with pytest.raises(ValueError, match="each at most once"):
        play(truth(timed("a", 1.0)), RULES["flat"], {}, order)


def test_a_parameter_that_the_rule_lacks_is_told() -> None:
    with pytest.raises(ValueError, match="has no parameter 'eta'"):
        play(truth(timed("a", 1.0)), RULES["flat"], {"eta": 3.0})


def test_the_steps_go_on_by_what_each_came_to() -> None:
    walk = steps(["a", "b", "c"], overrides=1)
    assert next(walk) == Step("a", Rung.compile)
    assert walk.send(outcome(Rung.compile, Verdict.build_failed)) == Step("b", Rung.compile)
    for name, ratio in (("b", 1.0), ("c", 2.0)):
        assert walk.send(outcome(Rung.compile, Verdict.built)) == Step(name, Rung.check)
        assert walk.send(outcome(Rung.check, Verdict.correct)) == Step(name, Rung.quick)
        assert walk.send(outcome(Rung.quick, Verdict.undecided, ratio)) == Step(name, Rung.precise)
        step = walk.send(None)
    assert step == Step("c", Rung.precise, again=True)
    assert walk.send(None) == Step("b", Rung.precise, again=True)
    assert walk.send(outcome(Rung.precise, Verdict.same, 1.0)) == Step("c", Rung.precise, again=True, reason=EXPLORING)
    with pytest.raises(StopIteration):
        walk.send(outcome(Rung.precise, Verdict.same, 2.0))


ratios = st.floats(0.1, 20.0)
candidates = st.one_of(
    st.just(None),
    st.tuples(ratios, ratios, st.sampled_from([Verdict.maybe_faster, Verdict.undecided, Verdict.clearly_slower])),
)


def made(rows: list[tuple[float, float, Verdict] | None]) -> Truth:
    return truth(
        *(
            wrong(f"k{number}") if row is None else timed(f"k{number}", row[0], row[1], quick_verdict=row[2])
            for number, row in enumerate(rows)
        )
    )


truths = st.lists(candidates, max_size=12).map(made)
budgets = st.one_of(st.none(), st.floats(0.0, 40.0))


@given(truths, st.sampled_from(sorted(RULES)), budgets, st.randoms(use_true_random=False))
def test_no_play_breaks_what_holds_of_all(of: Truth, name: str, budget_s: float | None, draws: object) -> None:
    ids = [tried.id for tried in of.tried]
    draws.shuffle(ids)  # type: ignore[attr-defined]  # hypothesis' Random
    played = play(of, RULES[name], {}, ids, budget_s)
    spent_s = sum(played.device_s.values())
    assert spent_s <= sum(flat(of).device_s.values()) + 1e-6
    assert budget_s is None or spent_s <= budget_s + 1e-6
    assert budget_s is not None or not played.partial
    assert not set(played.admitted) & set(played.refused)
    assert len(set(played.admitted)) == len(played.admitted)
    assert played.calls["precise"] == len(played.admitted)
    assert played.calls["compile"] >= played.calls["check"] >= played.calls["quick"] >= played.calls["precise"]
    assert played.best in (*played.admitted, None)
    assert all(one.ratio < other.ratio and one.device_s <= other.device_s for one, other in pairwise(played.curve))
    precise = {tried.id: tried.outcomes[-1] for tried in of.tried if len(tried.outcomes) == 4}
    if played.best is not None:
        assert precise[played.best].ratio == max(precise[each].ratio or 0.0 for each in played.admitted)


@given(truths, st.integers(0, 3))
def test_every_correct_candidate_is_admitted_or_refused_once_a_whole_stream_was_played(of: Truth, purse: int) -> None:
    played = play(of, RULES["halving"], {}, overrides=purse)
    correct = {tried.id for tried in of.tried if len(tried.outcomes) == 4}
    assert {*played.admitted, *played.refused} == correct


def test_an_outcome_is_only_sent_for_the_step_it_is_of() -> None:
    asked: list[Step] = []
    walk = steps(["a"])
    step: Step | None = next(walk)
    by_rung: dict[Rung, Outcome] = {each.rung: each for each in timed("a", 1.0).outcomes}
    while step is not None:
        asked.append(step)
        try:
            step = walk.send(by_rung[step.rung])
        except StopIteration:
            step = None
    assert [each.rung for each in asked] == [Rung.compile, Rung.check, Rung.quick, Rung.precise]

import math
import statistics
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from truths import broken, timed, truth, wrong

from kernelgate.budget.ladder.model import Tried, Truth
from kernelgate.budget.ladder.noise import Cost, Failure, Noise, TooLittle, noise_of
from kernelgate.budget.ladder.orders import orders
from kernelgate.budget.ladder.simulate import KINDS, simulate
from kernelgate.budget.model import PASSING, Rung, Verdict

NOISE = Noise(
    source="made up for a test",
    costs=(Cost(check_s=0.25, quick_s=0.5, precise_s=2.0),),
    failures=(Failure(device_s=0.125, wall_s=0.25),),
    quick_half_widths=(0.002, 0.01),
    precise_half_widths=(0.001, 0.002),
    quick_errors=(-0.002, 0.0, 0.002),
    quick_shifts=(0.0,),
    build_failed_share=0.1,
    wrong_share=0.1,
)


def ratios(of: Truth, rung: Rung) -> list[float]:
    return [each.ratio for tried in of.tried for each in tried.outcomes if each.rung is rung and each.ratio]


def disorder(of: Truth) -> float:
    pairs = list(zip(ratios(of, Rung.quick), ratios(of, Rung.precise), strict=True))
    signs = [(a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(pairs, 2)]
    return statistics.fmean(signs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_stream_is_the_same_for_the_same_seed_and_another_for_another(kind: str) -> None:
    first, again, other = (list(simulate(kind, NOISE, 2, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first[0].tried != first[1].tried
    assert first != other
    assert [len(each.tried) for each in first] == [40, 40]
    assert first[0].device == "simulated from made up for a test"


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 10_000), st.integers(1, 12))
def test_every_simulated_candidate_climbs_as_far_as_it_passes_and_comes_behind_its_parent(
    kind: str, seed: int, size: int
) -> None:
    (made,) = simulate(kind, NOISE, 1, seed, size)
    seen: set[str] = set()
    for tried in made.tried:
        assert tried.parent is None or tried.parent in seen
        seen.add(tried.id)
        passed = [each.verdict in PASSING[each.rung] for each in tried.outcomes]
        assert all(passed[:-1])
        assert passed[-1] == (tried.outcomes[-1].rung is Rung.precise)
        assert all(each.low is None or each.low <= (each.ratio or 0.0) <= (each.high or 0.0) for each in tried.outcomes)


def test_each_kind_is_what_its_name_says() -> None:
    made = {kind: list(simulate(kind, NOISE, 60, 3)) for kind in KINDS}
    timed_share = {
        kind: statistics.fmean(len(ratios(each, Rung.precise)) / len(each.tried) for each in streams)
        for kind, streams in made.items()
    }
    assert timed_share["mostly_wrong"] == pytest.approx(0.25, abs=0.03)
    assert timed_share["shuffled"] == pytest.approx(0.81, abs=0.03)
    disordered = {kind: statistics.fmean(map(disorder, streams)) for kind, streams in made.items()}
    assert disordered["quick_ranks_badly"] > 0.25
    assert disordered["shuffled"] < 0.02

    def place_of_best(of: Truth) -> float:
        found = ratios(of, Rung.precise)
        return found.index(max(found)) / len(found)

    places = {kind: statistics.fmean(map(place_of_best, streams)) for kind, streams in made.items()}
    assert places["improving"] > 0.7
    assert places["stagnating"] < 0.3
    near = [
        sum(one > 0.98 * max(found) for one in found) for found in (ratios(s, Rung.precise) for s in made["near_ties"])
    ]
    assert statistics.fmean(near) > 5


def test_noise_is_read_from_what_was_recorded() -> None:
    even = [timed(f"k{n}", 1.0, 1.1, spread=0.01, quick_spread=0.022) for n in range(5)]
    noise = noise_of([truth(*even, timed("odd", 1.0, 1.21), broken("b"), wrong("w"))], "a book")
    assert noise.source == "a book"
    assert noise.quick_errors == pytest.approx((0.0,) * 5 + (math.log(1.1),))
    assert noise.quick_shifts == pytest.approx((math.log(1.1),))
    assert noise.quick_half_widths[0] == pytest.approx(0.02)
    assert noise.precise_half_widths[0] == pytest.approx(0.01)
    assert (noise.build_failed_share, noise.wrong_share) == (pytest.approx(1 / 8), pytest.approx(1 / 7))
    assert noise.costs[0] == Cost(
        check_s=0.25, quick_s=0.5, precise_s=2.0, compile_wall_s=1, check_wall_s=1, quick_wall_s=1, precise_wall_s=1
    )
    assert noise.failures == (Failure(device_s=0.25, wall_s=1.0),)


def test_a_simulation_with_the_noise_of_a_simulation_scatters_alike() -> None:
    first = list(simulate("shuffled", NOISE, 40, 5))
    again = noise_of(first, "the same")
    assert again.wrong_share == pytest.approx(NOISE.wrong_share, abs=0.03)
    assert statistics.pstdev(again.quick_errors) == pytest.approx(statistics.pstdev(NOISE.quick_errors), rel=0.2)


def test_a_book_that_says_too_little_has_no_noise() -> None:
    with pytest.raises(TooLittle, match="a book has 1 candidates timed by quick and precise; at least 5 are needed"):
        noise_of([truth(timed("a", 1.0), broken("b"))], "a book")
    with pytest.raises(TooLittle):
        noise_of([], "nothing")


def test_a_book_without_failures_simulates_streams_without_failures() -> None:
    noise = noise_of([truth(*(timed(f"k{n}", 1.0 + n) for n in range(5)))], "a book")
    (made,) = simulate("shuffled", noise, 1, 1)
    assert all(tried.outcomes[-1].rung is Rung.precise for tried in made.tried)


@given(st.lists(st.one_of(st.none(), st.integers(0, 8)), min_size=1, max_size=9), st.integers(0, 99))
def test_every_order_has_each_candidate_once_and_parents_before_children(parents: list[int | None], seed: int) -> None:
    rows: list[Tried] = []
    for number, parent in enumerate(parents):
        kin = None if parent is None else f"k{parent}" if parent < number else "gone"
        rows.append(broken(f"k{number}").model_copy(update={"parent": kin}))
    of = truth(*rows)
    for order in orders(of, 3, seed):
        assert sorted(order) == sorted(tried.id for tried in rows)
        for tried in rows:
            if tried.parent in order:
                assert order.index(str(tried.parent)) < order.index(tried.id)
    assert list(orders(of, 3, seed)) == list(orders(of, 3, seed))


def test_orders_differ() -> None:
    of = truth(*(timed(f"k{n}", 1.0, quick_verdict=Verdict.undecided) for n in range(8)))
    assert len(set(orders(of, 20, 1))) > 15

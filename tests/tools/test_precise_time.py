import itertools
import random
from typing import Any

import pytest
from synthetic import CEILINGS, WORKLOAD, noisy, right, timing, workload, wrong

from kernelgate.budget.model import Verdict
from kernelgate.tools import quick_time
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.timing_report import TimingFacts
from kernelgate.tools.kit.wire import ChildExit
from kernelgate.tools.precise_time import (
    LOOKS,
    PrecisePlan,
    PreciseReport,
    certain,
    is_far,
    judge,
    needs_less,
    noise_floor,
)

FINISHED = ChildExit(kind="finished")


def verdict(*timings: WorkloadTiming, plan: PrecisePlan | None = None) -> PreciseReport:
    return judge(TimingFacts(timings=timings, ceilings=CEILINGS), FINISHED, plan or PrecisePlan())


def test_a_clear_gain_is_faster_with_its_interval() -> None:
    rng = random.Random(1)
    report = verdict(timing(noisy(rng, 1000, 0.01), noisy(rng, 500, 0.01), 24))
    assert report.verdict is Verdict.faster
    assert report.ratio == pytest.approx(2.0, rel=0.02)
    assert report.low is not None
    assert report.low <= report.ratio <= report.high
    assert report.outside_low is not None
    assert report.outside_low > 1


def test_the_baseline_against_itself_is_the_same_and_no_gain() -> None:
    rng = random.Random(2)
    report = verdict(timing(noisy(rng, 1000, 0.002), noisy(rng, 1000, 0.002), 96))
    assert report.verdict is Verdict.same
    assert report.code == "NO_GAIN"


def test_a_clear_loss_is_slower() -> None:
    rng = random.Random(3)
    assert verdict(timing(noisy(rng, 500, 0.01), noisy(rng, 600, 0.01), 24)).verdict is Verdict.slower


def test_noise_that_hides_the_answer_is_ambiguous_not_faster() -> None:
    rng = random.Random(4)
    report = verdict(timing(noisy(rng, 1000, 0.3), noisy(rng, 990, 0.3), 192))
    assert report.verdict is Verdict.ambiguous


def test_a_gain_under_the_noise_floor_of_the_device_is_not_called_faster() -> None:
    rng = random.Random(5)
    measured = timing(noisy(rng, 1000, 0.005), noisy(rng, 970, 0.005), 96)
    assert verdict(measured).verdict is Verdict.faster
    assert verdict(measured, plan=PrecisePlan(floor=0.08)).verdict is Verdict.same


def test_a_forged_clock_is_suspicious_with_both_numbers() -> None:
    rng = random.Random(6)
    honest = noisy(rng, 1000, 0.01)
    report = verdict(timing(honest, noisy(rng, 500, 0.01), 24, true_candidate_us=honest))
    assert report.verdict is Verdict.suspicious
    assert report.code == "TIMER_PATCH"
    assert "501 µs" in report.summary
    assert "1,0" in report.summary
    assert report.ratio is None


def test_claiming_too_much_in_some_pairs_does_not_hide_what_is_forged_in_the_others() -> None:
    claims = itertools.cycle([150.0] * 12 + [900.0] * 4)  # by pairs of four calls: three forged, one overdone
    rng = random.Random(5)
    found = timing(
        noisy(rng, 500.0, 0.02), lambda: next(claims), 24, true_candidate_us=noisy(rng, 480.0, 0.02)
    )  # fmt: skip
    report = judge(TimingFacts(timings=(found,), ceilings=CEILINGS), FINISHED, PrecisePlan())
    assert (report.verdict, report.code) == ("suspicious", "TIMER_PATCH")


def test_a_slow_candidate_is_not_accused_where_its_baseline_is_too_short_for_the_referees_clock() -> None:
    rng = random.Random(8)
    found = timing(
        noisy(rng, 6.0, 0.01), noisy(rng, 80_000.0, 0.005), 24, true_candidate_us=noisy(rng, 78_900.0, 0.005)
    )
    short = tuple(
        pair.model_copy(update={"baseline": pair.baseline.model_copy(update={"outside_us": (3.0,) * 4})})
        for pair in found.pairs
    )
    report = verdict(found.model_copy(update={"pairs": short}))
    assert report.verdict is not Verdict.suspicious, report.summary


def with_work(found: WorkloadTiming, **beyond: float) -> WorkloadTiming:
    """The same timing, with processor time beyond the windows of its four calls of 250 µs."""
    pairs = tuple(
        pair.model_copy(update={"candidate": pair.candidate.model_copy(update=beyond)}) for pair in found.pairs
    )
    return found.model_copy(update={"pairs": pairs})


@pytest.mark.parametrize(
    ("beyond", "seen"),
    [
        ({"unseen_us": -3000.0}, False),
        ({"unseen_us": 600.0, "helpers_us": 20.0}, False),
        ({"unseen_us": 1200.0}, False),
        ({"unseen_us": 2400.0}, True),
        ({"unseen_us": 2400.0, "rows": 4}, False),
        ({"unseen_us": 100.0, "helpers_us": 600.0}, True),
    ],
)
def test_work_that_no_window_holds_is_suspicious(beyond: dict[str, float], *, seen: bool) -> None:
    rng = random.Random(6)
    found = with_work(timing(noisy(rng, 500.0, 0.01), noisy(rng, 250.0, 0.01), 24), **beyond)
    facts = TimingFacts(timings=(found,), ceilings=CEILINGS)
    for report in (judge(facts, FINISHED, PrecisePlan()), quick_time.judge(facts, FINISHED, quick_time.QuickPlan())):
        assert (report.code == "THREAD") == seen
        assert (report.verdict == "suspicious") == seen
        assert ("µs more" in report.summary) == seen


def test_a_small_forgery_is_not_faster_because_the_outside_clock_does_not_confirm_it() -> None:
    rng = random.Random(7)
    honest = noisy(rng, 1000, 0.002)
    report = verdict(timing(honest, noisy(rng, 970, 0.002), 48, true_candidate_us=honest))
    assert report.verdict is Verdict.ambiguous
    assert "own clock only" in report.summary


def test_faster_than_its_bytes_allow_is_impossible() -> None:
    rng = random.Random(8)
    report = verdict(timing(noisy(rng, 1000, 0.01), noisy(rng, 1.0, 0.01), 24))
    assert report.verdict is Verdict.impossible
    assert report.code == "IMPOSSIBLE"


def test_a_wrong_output_of_a_timed_call_is_named_as_such() -> None:
    rng = random.Random(9)
    measured = timing(noisy(rng, 1000, 0.01), noisy(rng, 500, 0.01), 4).model_copy(update={"wrong": wrong()})
    report = verdict(measured)
    assert report.verdict is Verdict.wrong_values
    assert report.code == "PHASE_SNIFF"


def test_a_candidate_that_is_wrong_only_on_a_hidden_shape_fits_the_shown_ones() -> None:
    rng = random.Random(10)
    hidden = timing(noisy(rng, 1000, 0.01), noisy(rng, 500, 0.01), 2, facts=workload("secret", held_out=True))
    report = verdict(hidden.model_copy(update={"wrong": wrong("secret")}))
    assert report.code == "SHAPE_FIT"
    assert "secret" not in report.model_dump_json()


def far(rng: random.Random, **facts: Any) -> WorkloadTiming:
    return timing(noisy(rng, 1200, 0.01), noisy(rng, 100, 0.01), 24, facts=workload(**facts))


def test_what_is_over_ten_times_faster_is_told_with_how_often_it_was_right_afterwards() -> None:
    rng = random.Random(21)
    measured = TimingFacts(timings=(far(rng),), again=(right(), right()))
    assert is_far(measured.timings[0])
    assert not is_far(timing(noisy(rng, 1000, 0.01), noisy(rng, 200, 0.01), 24))
    report = judge(measured, ChildExit(kind="finished"), PrecisePlan())
    assert report.verdict is Verdict.faster
    assert "over 10x: 2 more answers were right" in report.summary


def test_a_wrong_answer_behind_the_timing_takes_the_gain_away() -> None:
    measured = TimingFacts(timings=(far(random.Random(22)),), again=(right(), wrong()))
    report = judge(measured, ChildExit(kind="finished"), PrecisePlan())
    assert (report.verdict, report.code, report.ratio) == (Verdict.wrong_values, "PHASE_SNIFF", None)
    assert report.summary.startswith("it is over 10x, so it was checked once more")


def test_of_a_hidden_workload_that_is_wrong_behind_the_timing_nothing_is_told() -> None:
    measured = TimingFacts(
        timings=(far(random.Random(23), name="secret", held_out=True),), again=(right("secret"), wrong("secret"))
    )
    report = judge(measured, ChildExit(kind="finished"), PrecisePlan())
    assert report.code == "SHAPE_FIT"
    assert "secret" not in report.model_dump_json()


def test_a_gain_that_hides_a_regression_says_so() -> None:
    rng = random.Random(11)
    gain = timing(noisy(rng, 1000, 0.01), noisy(rng, 300, 0.01), 24, facts=workload("large"))
    loss = timing(noisy(rng, 1000, 0.01), noisy(rng, 1500, 0.01), 24, facts=workload("small"))
    report = verdict(gain, loss)
    assert report.verdict is Verdict.faster
    assert report.worst_workload == "small"
    assert "small got slower" in report.summary


def test_too_few_pairs_give_no_number() -> None:
    rng = random.Random(12)
    report = verdict(timing(noisy(rng, 1000, 0.01), noisy(rng, 500, 0.01), 6))
    assert report.verdict is Verdict.no_sample_left
    assert report.ratio is None


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (ChildExit(kind="cap_reached"), Verdict.timed_out),
        (ChildExit(kind="signalled", status=11), Verdict.crashed),
        (ChildExit(kind="signalled", status=9), Verdict.out_of_memory),
        (ChildExit(kind="exited", status=3), Verdict.crashed),
    ],
)
def test_how_the_process_ended_decides_when_the_candidate_is_gone(ended: ChildExit, expected: Verdict) -> None:
    facts = TimingFacts(fault=Fault(kind="gone", stage="block"))
    assert judge(facts, ended, PrecisePlan()).verdict is expected
    assert judge(None, ended, PrecisePlan()).verdict is expected


def test_the_noise_floor_is_the_gap_that_the_baseline_against_itself_reaches() -> None:
    rng = random.Random(13)
    quiet = TimingFacts(timings=(timing(noisy(rng, 1000, 0.001), noisy(rng, 1000, 0.001), 24),))
    loud = TimingFacts(timings=(timing(noisy(rng, 1000, 0.1), noisy(rng, 1000, 0.1), 24),))
    assert noise_floor(quiet) == pytest.approx(0.005, abs=0.002)
    assert noise_floor(loud) > 0.01


def test_at_most_one_in_a_hundred_equal_candidates_is_called_faster_or_slower() -> None:
    """The whole schedule with its five looks, on 20,000 series of pair ratios of the baseline against itself."""
    from kernelgate.tools.kit.statistics import Bounds, median_bounds
    from kernelgate.tools.precise_time import LOOK_CONFIDENCE, class_at_look

    rng = random.Random(14)
    sure = Bounds(1.5, 1.4, 1.6)  # the outside clock is left out: it can only lower the share
    false = 0
    for _ in range(20_000):
        ratios: list[float] = []
        for look in LOOKS:
            while len(ratios) < look:
                ratios.append(rng.gauss(1.0, 0.02))
            named = class_at_look(median_bounds(ratios, LOOK_CONFIDENCE), sure, 0.005)
            if named != "ambiguous":
                false += named != "same"
                break
    assert false / 20_000 <= 0.01


def test_a_two_percent_gain_is_found_when_the_noise_is_one_percent() -> None:
    rng = random.Random(15)
    found = sum(
        verdict(timing(noisy(rng, 1000, 0.01), noisy(rng, 980, 0.01), 192, calls=8)).verdict is Verdict.faster
        for _ in range(20)
    )
    assert found >= 18


def test_measuring_stops_when_more_pairs_would_change_nothing() -> None:
    rng = random.Random(16)
    assert certain(timing(noisy(rng, 1000, 0.01), noisy(rng, 500, 0.01), 12), 0.005)
    assert not certain(timing(noisy(rng, 1000, 0.2), noisy(rng, 990, 0.2), 24), 0.005)


PRODUCT = WORKLOAD.model_copy(update={"flops": 100_000_000})
"""2 ms by its operations, 0.2 ms by its bytes in the cache."""


def test_less_work_than_the_reference_does_is_no_impossible_claim_but_checked_harder() -> None:
    rng = random.Random(13)
    shortcut = timing(noisy(rng, 2500, 0.01), noisy(rng, 900, 0.01), 24, facts=PRODUCT)
    usual = timing(noisy(rng, 2500, 0.01), noisy(rng, 2100, 0.01), 24, facts=PRODUCT)
    assert not is_far(shortcut)
    assert needs_less(shortcut, CEILINGS)
    assert not needs_less(usual, CEILINGS)
    facts = TimingFacts(timings=(shortcut,), ceilings=CEILINGS, again=(right(), right()))
    report = judge(facts, FINISHED, PrecisePlan())
    assert report.verdict is Verdict.faster
    assert "faster than the reference's operations could be done: 2 more answers were right" in report.summary
    assert report.workloads[0].bound_us == pytest.approx(800), "by its bytes alone: its operations are not needed"
    assert report.workloads[0].headroom == pytest.approx((report.workloads[0].candidate_us or 0) / 800)
    assert report.stop_advice == ""
    assert verdict(usual).workloads[0].bound_us == pytest.approx(2000)
    assert verdict(usual).stop_advice


def test_who_does_less_than_the_reference_must_move_its_bytes_all_the_same() -> None:
    rng = random.Random(14)
    assert verdict(timing(noisy(rng, 2500, 0.01), noisy(rng, 50, 0.01), 24, facts=PRODUCT)).code == "IMPOSSIBLE"


def test_a_device_that_is_too_noisy_calls_nothing_the_same() -> None:
    rng = random.Random(30)
    measured = timing(noisy(rng, 1258, 0.02), noisy(rng, 1000, 0.02), 96)
    report = verdict(measured, plan=PrecisePlan(floor=0.54))
    assert report.verdict is Verdict.ambiguous
    assert "too noisy to tell: ask again with fresh=true" in report.summary
    assert verdict(timing(noisy(rng, 1000, 0.01), noisy(rng, 1000, 0.01), 96), plan=PrecisePlan(floor=0.2)).verdict is (
        Verdict.same
    )


def test_an_ambiguous_verdict_says_why_and_what_may_help() -> None:
    rng = random.Random(31)
    report = verdict(timing(noisy(rng, 1000, 0.2), noisy(rng, 985, 0.2), 192))
    assert report.verdict is Verdict.ambiguous
    assert "too wide at the 99.8% that a class takes: fresh=true on a quieter device" in report.summary

import random

import pytest
from synthetic import CEILINGS, noisy, timing, workload

from kernelgate.budget.model import Verdict
from kernelgate.tools.kit.timing_report import TimingFacts
from kernelgate.tools.kit.wire import ChildExit
from kernelgate.tools.quick_time import PAIRS, QuickPlan, QuickReport, judge, score

FINISHED = ChildExit(kind="finished")


def classify(candidate_us: float, spread: float = 0.01) -> QuickReport:
    rng = random.Random(1)
    small = timing(noisy(rng, 900, spread), noisy(rng, candidate_us, spread), PAIRS, facts=workload("small"))
    large = timing(noisy(rng, 900, spread), noisy(rng, candidate_us, spread), PAIRS, facts=workload("large"))
    return judge(TimingFacts(timings=(small, large), ceilings=CEILINGS), FINISHED, QuickPlan())


@pytest.mark.parametrize(
    ("candidate_us", "spread", "expected"),
    [(600, 0.01, Verdict.maybe_faster), (1200, 0.01, Verdict.clearly_slower), (900, 0.2, Verdict.undecided)],
)
def test_the_class_says_on_which_side_of_one_the_interval_lies(
    candidate_us: float, spread: float, expected: Verdict
) -> None:
    report = classify(candidate_us, spread)
    assert report.verdict is expected
    assert report.ratio is not None
    assert report.low is not None
    assert report.low <= report.ratio <= report.high


@pytest.mark.parametrize(("margin", "expected"), [(0.0, Verdict.clearly_slower), (0.1, Verdict.undecided)])
def test_what_two_processes_may_differ_by_is_not_clearly_slower(margin: float, expected: Verdict) -> None:
    rng = random.Random(2)
    found = timing(noisy(rng, 900, 0.005), noisy(rng, 945, 0.005), PAIRS)
    facts = TimingFacts(timings=(found,), ceilings=CEILINGS, margin=margin)
    assert judge(facts, FINISHED, QuickPlan()).verdict is expected


def test_the_score_is_the_ratio_with_its_interval() -> None:
    found = score(classify(600))
    assert found is not None
    assert found.low <= found.ratio <= found.high
    assert found.ratio == pytest.approx(1.5, rel=0.03)


def test_a_call_too_slow_for_an_interval_gets_no_ratio() -> None:
    rng = random.Random(2)
    facts = TimingFacts(timings=(timing(noisy(rng, 900, 0.01), noisy(rng, 900, 0.01), 3),), ceilings=CEILINGS)
    report = judge(facts, FINISHED, QuickPlan())
    assert report.verdict is Verdict.timed_out
    assert report.ratio is None
    assert score(report) is None


def test_a_ratio_cannot_stand_beside_a_failure() -> None:
    with pytest.raises(ValueError, match="only with them"):
        QuickReport(verdict=Verdict.crashed, summary="x", ratio=1.0, low=0.9, high=1.1)

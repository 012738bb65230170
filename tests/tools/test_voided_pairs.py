"""Pairs that do not count, other memory at each look, and further fresh processes; on a bench made of numbers."""

import random
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import CEILINGS, WORKLOAD, block, noisy, prepared, timing

from kernelgate.budget.model import Verdict
from kernelgate.tools import precise_time, quick_time
from kernelgate.tools.kit import pairing
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.facts import Block, DeviceState, Fault, Prepared, Side
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.timing_report import TimingFacts, with_process
from kernelgate.tools.kit.voiding import MOST_WARMING, why_void
from kernelgate.tools.kit.wire import ChildExit, DeviceRef
from kernelgate.tools.precise_time import LOOKS, PROCESSES, PrecisePlan, judge, wants_more

FINISHED = ChildExit(kind="finished")
STEADY = DeviceState(sm_clock_mhz=1980, temperature_c=50)
HOT = DeviceState(sm_clock_mhz=1980, temperature_c=91, throttle_reasons=0x40)
CAPPED = DeviceState(sm_clock_mhz=1500, throttle_reasons=0x04)


class NumbersBench:
    """Answers with numbers; its device says what it is told to say."""

    device = DeviceRef(kind="cuda", uid="GPU-1")

    def __init__(self, states: Iterator[DeviceState | None], gain: float = 2.0, noise: float = 0.001) -> None:
        self.secret = random.Random(1)
        self.house_s = 0.0
        self.prepared = 0
        self.fails_at = 0
        self._states = states
        self._us: dict[Side, Callable[[], float]] = {
            "baseline": noisy(self.secret, 1000.0, noise), "candidate": noisy(self.secret, 1000.0 / gain, noise),
        }  # fmt: skip

    def state(self) -> DeviceState | None:
        return next(self._states)

    def on_the_house(self, seconds: float) -> None:
        assert seconds >= 0
        self.house_s += seconds

    def progress(self, *_: Any) -> None:
        pass

    def load(self) -> Fault | None:
        return None

    def workloads(self, *, held_out: bool) -> tuple[Any, ...]:
        return (WORKLOAD,)

    def ceilings(self) -> Any:
        return CEILINGS

    def prepare(self, workload: str, entries: int) -> Prepared | Fault:
        self.prepared += 1
        if self.prepared == self.fails_at:
            return Fault(kind="raised", stage="forward", error="ValueError: no")
        return prepared()

    def block(self, side: Side, calls: int, *, verify: bool) -> Block:
        us = [self._us[side]() for _ in range(calls)]
        return block(side, us, us)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "PAUSE_S", 0.0)


def precise(bench: NumbersBench, **plan: Any) -> precise_time.PreciseReport:
    chosen = PrecisePlan(**plan)
    return judge(precise_time.measure(cast("Bench", bench), chosen), FINISHED, chosen)


def test_pairs_of_a_device_that_is_held_back_do_not_count_and_are_paid_by_the_house() -> None:
    bench = NumbersBench(chain([STEADY], repeat(HOT, 5), repeat(STEADY)))
    report = precise(bench)
    assert (report.verdict, report.voided) == (Verdict.faster, 5)
    assert "5 pairs do not count: 5 because the device was too hot" in report.summary
    assert report.workloads[0].pairs == LOOKS[0]
    assert bench.house_s > 0


def test_a_device_that_is_always_held_back_gives_no_number() -> None:
    for tool, plan in ((precise_time, PrecisePlan()), (quick_time, quick_time.QuickPlan())):
        bench = NumbersBench(repeat(HOT))
        facts = tool.measure(cast("Bench", bench), plan)
        report: Any = tool.judge(facts, FINISHED, plan)
        assert (report.verdict, report.ratio) == (Verdict.no_sample_left, None)
        assert "24 pairs do not count" in report.summary
        assert "ask again with fresh when the device has cooled down" in report.summary
        assert len(facts.timings[0].voided) == pairing.MOST_VOIDED


def test_a_power_cap_voids_nothing_for_a_heavy_kernel_always_runs_at_it() -> None:
    assert precise(NumbersBench(repeat(CAPPED))).voided == 0
    assert precise(NumbersBench(repeat(None))).voided == 0


def test_a_clock_that_still_moves_is_waited_for_and_not_for_ever() -> None:
    rising = [DeviceState(sm_clock_mhz=mhz) for mhz in (345, 900, 1500, 1980)]
    report = precise(NumbersBench(chain(rising, repeat(STEADY))))
    assert (report.voided, report.verdict) == (3, Verdict.faster)
    assert "3 because the device's clock was still moving" in report.summary
    restless = chain.from_iterable(repeat((DeviceState(sm_clock_mhz=1000), STEADY)))
    assert precise(NumbersBench(restless)).voided == MOST_WARMING


@given(st.lists(st.sampled_from([STEADY, HOT, CAPPED, None, DeviceState(sm_clock_mhz=345)]), min_size=1, max_size=60))
def test_whatever_the_device_says_each_pair_counts_or_is_kept_with_why_it_does_not(
    states: list[DeviceState | None],
) -> None:
    facts = precise_time.measure(cast("Bench", NumbersBench(chain(states, repeat(STEADY)))), PrecisePlan())
    (only,) = facts.timings
    assert not any(pair.void for pair in only.pairs)
    assert all(pair.void for pair in only.voided)
    assert not any(why_void(STEADY, pair.state, counted=1, voided=()) for pair in only.pairs)
    assert len(only.pairs) in LOOKS or len(only.voided) == pairing.MOST_VOIDED


def test_each_further_look_is_in_other_memory() -> None:
    bench = NumbersBench(repeat(STEADY), gain=1.004, noise=0.03)
    facts = precise_time.measure(cast("Bench", bench), PrecisePlan())
    assert len(facts.timings[0].pairs) > LOOKS[1]
    assert bench.prepared == LOOKS.index(len(facts.timings[0].pairs)) + 1


def test_a_failure_in_other_memory_is_a_failure() -> None:
    bench = NumbersBench(repeat(STEADY), gain=1.004, noise=0.03)
    bench.fails_at = 2
    assert precise(bench).verdict is Verdict.crashed


def in_process(gain: float, seed: int, noise: float = 0.001) -> TimingFacts:
    rng = random.Random(seed)
    return TimingFacts(timings=(timing(noisy(rng, 1000, noise), noisy(rng, 1000 / gain, noise), 24),))


def test_a_small_gain_is_seen_in_several_fresh_processes_before_it_is_told() -> None:
    small, large = in_process(1.02, 1), in_process(2.0, 2)
    assert not wants_more(large, PrecisePlan())
    facts = small
    for further in range(1, PROCESSES):
        assert wants_more(facts, PrecisePlan())
        facts = with_process(facts, in_process(1.02, further + 10))
    assert not wants_more(facts, PrecisePlan())
    report = judge(facts, FINISHED, PrecisePlan())
    assert (report.verdict, report.processes) == (Verdict.faster, PROCESSES)
    assert report.workloads[0].pairs == PROCESSES * 24
    assert f"in each of {PROCESSES} fresh processes" in report.summary
    for single in (small, in_process(1.02, 11)):
        alone = judge(single, FINISHED, PrecisePlan())
        assert report.low is not None
        assert alone.low is not None
        assert report.low <= alone.low, "its interval holds what each process showed"


def test_a_gain_that_another_process_does_not_show_is_none() -> None:
    facts = with_process(in_process(1.02, 3), in_process(1.0, 4))
    assert not wants_more(facts, PrecisePlan())
    assert judge(facts, FINISHED, PrecisePlan()).verdict is Verdict.ambiguous


def test_a_further_process_without_pairs_shows_nothing_and_asks_for_no_other_in_its_place() -> None:
    first, further = in_process(1.02, 7), in_process(1.02, 8)
    (only,) = further.timings
    silent = further.model_copy(update={"timings": (only.model_copy(update={"pairs": (), "voided": only.pairs}),)})
    facts = with_process(first, silent)
    assert not wants_more(facts, PrecisePlan()), "the house would pay for such processes without end"
    assert judge(facts, FINISHED, PrecisePlan()).verdict is Verdict.no_sample_left


def test_a_workload_that_a_further_process_did_not_measure_is_not_told_as_seen_in_each() -> None:
    def two(gain: float, seed: int) -> TimingFacts:
        (a,), (b,) = in_process(gain, seed).timings, in_process(gain, seed + 1).timings
        return TimingFacts(timings=(a, b.model_copy(update={"workload": b.workload.model_copy(update={"name": "b"})})))

    facts = two(1.02, 20)
    for further in range(1, PROCESSES):
        more = two(1.02, 20 + 2 * further)
        lost = more.timings[1].model_copy(update={"pairs": (), "voided": more.timings[1].pairs})
        facts = with_process(facts, more.model_copy(update={"timings": (more.timings[0], lost)}))
    assert judge(facts, FINISHED, PrecisePlan()).verdict is Verdict.no_sample_left


def test_a_claim_makes_no_small_gain_a_large_one() -> None:
    rng = random.Random(9)
    claimed = timing(
        noisy(rng, 10_000, 0.001),
        noisy(rng, 10_000 / 1.15, 0.001),
        24,
        true_candidate_us=noisy(rng, 10_000 / 1.02, 0.001),
    )
    facts = TimingFacts(timings=(claimed,))
    assert judge(facts, FINISHED, PrecisePlan()).verdict is Verdict.faster
    assert wants_more(facts, PrecisePlan())


@pytest.mark.parametrize(
    "further",
    [
        TimingFacts(fault=Fault(kind="raised", stage="load", error="ValueError: second time")),
        TimingFacts(timings=(WorkloadTiming(workload=WORKLOAD, fault=Fault(kind="raised", stage="forward")),)),
    ],
    ids=["when loaded", "on a workload"],
)
def test_what_fails_in_a_further_process_has_failed(further: TimingFacts) -> None:
    assert judge(with_process(in_process(1.02, 5), further), FINISHED, PrecisePlan()).verdict is Verdict.crashed


def test_places_in_memory_that_bias_a_process_make_no_gain() -> None:
    """Equal kernels; each process is off by up to 1.3 % for its life, as two buffers on an H200 host were."""
    rng = random.Random(6)
    false = alone = 0
    for number in range(400):

        def one(number: int = number) -> TimingFacts:
            return in_process(1 + rng.uniform(-0.013, 0.013), 1000 * number + rng.randrange(1000))

        facts = one()
        alone += judge(facts, FINISHED, PrecisePlan()).verdict is Verdict.faster
        while wants_more(facts, PrecisePlan()):
            facts = with_process(facts, one())
        false += judge(facts, FINISHED, PrecisePlan()).verdict is Verdict.faster
    assert alone > 20
    assert false <= alone / 8


def test_a_host_that_takes_processor_time_is_named() -> None:
    assert "the host took 20%" in precise(NumbersBench(repeat(DeviceState(stolen_share=0.2)))).summary
    assert "the host took" not in precise(NumbersBench(repeat(DeviceState(stolen_share=0.01)))).summary


@given(st.floats(1, 3e6), st.floats(1, 3e6))
def test_both_sides_of_a_pair_make_as_many_calls_and_enough_where_there_is_time(
    baseline: float, candidate: float
) -> None:
    times = prepared().model_copy(update={"baseline_us": baseline, "candidate_us": candidate})
    calls = pairing.calls_of(times, "cpu", pairing.BLOCK_US)
    assert 1 <= calls <= pairing.MAX_CALLS
    all_pairs_us = pairing.FEWEST_BLOCKS * calls * (baseline + candidate)
    assert calls >= pairing.LEAST_CALLS or all_pairs_us + (baseline + candidate) * 12 > pairing.SHORT_OF_TIME_US
    assert calls == 1 or all_pairs_us <= max(pairing.SHORT_OF_TIME_US, 24 * 2 * pairing.BLOCK_US)


def test_calls_that_others_interrupt_do_not_make_the_slower_side_look_slower_still() -> None:
    """Every third stretch of 5 ms the processor goes to others, on both sides; the candidate is twice as fast."""
    rng = random.Random(7)

    def interrupted(centre_us: float) -> Callable[[], float]:
        return lambda: centre_us * rng.gauss(1, 0.01) + (5000.0 if rng.random() < centre_us / 5000 / 3 else 0.0)

    times = prepared().model_copy(update={"baseline_us": 2800.0, "candidate_us": 1400.0})
    calls = pairing.calls_of(times, "cpu", pairing.BLOCK_US)
    found = timing(interrupted(2800), interrupted(1400), 48, calls=calls).bounds(0.95)
    assert found is not None
    assert found.median == pytest.approx(2.0, rel=0.05)
    few = timing(interrupted(2800), interrupted(1400), 48, calls=2).bounds(0.95)
    assert few is not None
    assert few.high - few.low > 2 * (found.high - found.low)

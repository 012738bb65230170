import json
import random
from typing import Any, cast

import pytest
from bench_tasks import task
from hypothesis import given
from hypothesis import strategies as st
from synthetic import right, workload, wrong

from kernelgate.budget.model import Verdict
from kernelgate.tasks.model import Task
from kernelgate.tools.check_correctness import CheckFacts, CheckPlan, CheckReport, judge, measure
from kernelgate.tools.kit.facts import Comparison, Fault
from kernelgate.tools.kit.wire import ChildExit, DeviceRef

FINISHED = ChildExit(kind="finished")
PLAN = CheckPlan()


def test_answers_that_were_all_right_are_correct() -> None:
    report = judge(CheckFacts(comparisons=(right(), right()), planned=2), FINISHED, PLAN)
    assert report.verdict is Verdict.correct
    assert report.compared == 2


def test_one_wrong_answer_is_the_verdict_with_share_and_worst_errors() -> None:
    report = judge(CheckFacts(comparisons=(right(), wrong()), planned=9), FINISHED, PLAN)
    assert report.verdict is Verdict.wrong_values
    assert "50.00%" in report.summary


@pytest.mark.parametrize(
    ("problem", "verdict", "code"),
    [
        ("input_mutation", Verdict.input_mutation, "INPUT_MUTATION"),
        ("wrong_shape", Verdict.wrong_shape, None),
        ("wrong_dtype", Verdict.wrong_dtype, None),
        ("wrong_type", Verdict.wrong_type, "LAZY_OUTPUT"),
        ("nonfinite", Verdict.nonfinite, "NONFINITE"),
    ],
)
def test_each_problem_of_an_answer_has_its_verdict(problem: str, verdict: Verdict, code: str | None) -> None:
    answer = Comparison.model_validate({"workload": "w", "distribution": "normal", "problem": problem})
    report = judge(CheckFacts(comparisons=(answer,), planned=1), FINISHED, PLAN)
    assert report.verdict is verdict
    assert report.code == code


@pytest.mark.parametrize(
    ("looks_like", "code"),
    [
        ("zeros", "CONSTANT"),
        ("input", "PASSTHROUGH"),
        ("previous_output", "OUTPUT_REPLAY"),
        ("low_precision", "PRECISION_DOWNGRADE"),
    ],
)
def test_a_telling_wrong_answer_is_named(looks_like: str, code: str) -> None:
    answer = wrong().model_copy(update={"looks_like": looks_like})
    assert judge(CheckFacts(comparisons=(answer,), planned=1), FINISHED, PLAN).code == code


def passed(workload: str, distribution: str) -> Comparison:
    return Comparison.model_validate({"workload": workload, "distribution": distribution, "problem": "none"})


def test_a_pattern_is_told_in_the_sentence_and_with_the_first_wrong_elements() -> None:
    answer = wrong().model_copy(update={"pattern": "one tile: rows 16 to 31, columns 32 to 47"})
    report = judge(CheckFacts(comparisons=(answer,), planned=1), FINISHED, PLAN)
    assert report.summary.endswith("one tile: rows 16 to 31, columns 32 to 47")
    assert report.wrong is not None
    assert report.first == report.wrong.first


def test_what_was_right_before_tells_what_a_wrong_answer_depends_on() -> None:
    answer = wrong()
    other = passed("other size", answer.distribution)
    of_shape = judge(CheckFacts(comparisons=(other, answer), planned=9), FINISHED, PLAN)
    assert (of_shape.verdict, of_shape.code) == (Verdict.wrong_values, "SHAPE_FIT")
    assert "it was right on other size" in of_shape.summary
    here = passed(answer.workload, "uniform" if answer.distribution != "uniform" else "normal")
    of_values = judge(CheckFacts(comparisons=(other, here, answer), planned=9), FINISHED, PLAN)
    assert of_values.code == "DISTRIBUTION_FIT"
    again = passed(answer.workload, answer.distribution)
    assert judge(CheckFacts(comparisons=(again, answer), planned=9), FINISHED, PLAN).code is None


def test_an_answer_that_was_never_written_is_stale_memory() -> None:
    answer = wrong().model_copy(update={"untouched_share": 0.25})
    assert judge(CheckFacts(comparisons=(answer,), planned=1), FINISHED, PLAN).code == "STALE_MEMORY"


@pytest.mark.parametrize(
    ("kind", "verdict", "code"),
    [
        ("raised", Verdict.crashed, "CRASH"),
        ("out_of_memory", Verdict.out_of_memory, "OOM"),
        ("broken_protocol", Verdict.suspicious, "FAKE_REPORT"),
        ("too_early", Verdict.suspicious, "DEFERRED"),
    ],
)
def test_a_fault_of_the_candidate_has_its_verdict(kind: str, verdict: Verdict, code: str) -> None:
    fault = Fault.model_validate({"kind": kind, "stage": "forward", "error": "ValueError: no"})
    report = judge(CheckFacts(fault=fault, planned=1), FINISHED, PLAN)
    assert (report.verdict, report.code) == (verdict, code)
    assert "ValueError: no" in report.summary


def test_a_killed_hang_is_timed_out_even_without_facts() -> None:
    report = judge(None, ChildExit(kind="cap_reached"), PLAN)
    assert (report.verdict, report.code) == (Verdict.timed_out, "HANG")


def test_a_check_that_ended_early_without_a_reason_is_never_correct() -> None:
    report = judge(CheckFacts(comparisons=(right(),), planned=9), FINISHED, PLAN)
    assert report.verdict is not Verdict.correct
    assert judge(CheckFacts(), FINISHED, PLAN).verdict is not Verdict.correct


def test_correct_cannot_be_built_beside_a_wrong_answer() -> None:
    with pytest.raises(ValueError, match="none was wrong"):
        CheckReport(verdict=Verdict.correct, summary="x", compared=1, wrong=wrong())


class Asked:
    """A bench that answers right until it is told otherwise, and notes what it was asked."""

    def __init__(self, seed: int, wrong_from: int = 1000, looks_like: str = "", right_when: str = "never") -> None:
        self.secret = random.Random(seed)
        self.task = Task.model_validate_json(json.dumps(task()))
        self.asked: list[tuple[str, str, int | None]] = []
        self.device = DeviceRef(kind="cpu")
        self._wrong_from, self._looks_like, self._right_when = wrong_from, looks_like, right_when

    def load(self) -> None:
        return None

    def workloads(self, *, held_out: bool) -> tuple[Any, ...]:
        assert not held_out
        return workload("small"), workload("large")

    def progress(self, stage: str, done: int, total: int) -> None:
        assert done <= total

    def compare(self, name: str, distribution: str, again: int | None = None, *, wait: bool = False) -> Comparison:
        self.asked.append((name, distribution, again))
        mended = self._right_when == ("waited" if wait else "again" if again is not None else "")
        found = wrong(name) if len(self.asked) >= self._wrong_from and not mended else right(name)
        update = {"distribution": distribution, "again": again is not None}
        if found.problem != "none":
            update["looks_like"] = self._looks_like
        return found.model_copy(update=update)


@given(st.integers(0, 1 << 30))
def test_one_round_of_the_smallest_workload_repeats_an_earlier_one_and_none_is_left_out(seed: int) -> None:
    bench = Asked(seed)
    facts = measure(cast("Any", bench), PLAN)
    small = [(distribution, again) for name, distribution, again in bench.asked if name == "small"]
    repeats = [(place, again) for place, (_, again) in enumerate(small) if again is not None]
    ((place, again),) = repeats
    assert again < place
    assert small[again][0] == small[place][0]
    assert {distribution for distribution, _ in small} == set(bench.task.distributions)
    assert [again for name, _, again in bench.asked if name == "large"] == [None] * PLAN.compared
    assert len(bench.asked) == facts.planned == 2 * PLAN.compared, "it costs no call more than before"


def test_the_place_of_the_repeated_round_is_not_always_the_same() -> None:
    places = set()
    for seed in range(40):
        bench = Asked(seed)
        measure(cast("Any", bench), PLAN)
        places.add(next(place for place, (_, _, again) in enumerate(bench.asked) if again is not None))
    assert len(places) > 4


def test_behind_a_wrong_answer_that_says_nothing_the_last_right_one_is_asked_once_more() -> None:
    bench = Asked(3, wrong_from=14)
    facts = measure(cast("Any", bench), PLAN)
    assert bench.asked[-1] == ("large", bench.asked[-3][1], 3)
    report = judge(facts, FINISHED, PLAN)
    assert report.code == "PHASE_SNIFF"
    assert "depend on what it was asked before" in report.summary
    assert report.wrong == facts.comparisons[-1]
    told = Asked(3, wrong_from=14, looks_like="previous_output")
    assert judge(measure(cast("Any", told), PLAN), FINISHED, PLAN).code == "OUTPUT_REPLAY"
    assert len(told.asked) == 14


def test_a_wrong_answer_whose_predecessor_is_right_again_depends_on_the_values() -> None:
    answer = wrong()
    here = passed(answer.workload, "uniform")
    facts = CheckFacts(comparisons=(here, answer), before=here.model_copy(update={"again": True}), planned=9)
    assert judge(facts, FINISHED, PLAN).code == "DISTRIBUTION_FIT"


@pytest.mark.parametrize(
    ("right_when", "code", "said"),
    [
        ("waited", "WRONG_STREAM", "with a wait for the whole device it was right"),
        ("again", "PHASE_SNIFF", "right the second time"),
        ("never", None, "elements are wrong"),
    ],
)
def test_on_a_gpu_a_wrong_answer_is_asked_for_once_more_as_it_was_and_with_a_wait(
    right_when: str, code: str | None, said: str
) -> None:
    bench = Asked(5, wrong_from=1, right_when=right_when)
    bench.device = DeviceRef(kind="cuda", uid="GPU-1")
    report = judge(measure(cast("Any", bench), PLAN), FINISHED, PLAN)
    assert (report.verdict, report.code) == (Verdict.wrong_values, code)
    assert said in report.summary
    assert len(bench.asked) == {"waited": 3, "again": 2, "never": 3}[right_when]
    stale = Asked(5, wrong_from=1, looks_like="previous_output", right_when=right_when)
    stale.device = bench.device
    told = judge(measure(cast("Any", stale), PLAN), FINISHED, PLAN)
    assert told.code == ("WRONG_STREAM" if right_when == "waited" else "OUTPUT_REPLAY")


@pytest.mark.parametrize(
    ("looks_like", "code"),
    [("", "PHASE_SNIFF"), ("zeros", "PHASE_SNIFF"), ("previous_output", "OUTPUT_REPLAY"),
     ("low_precision", "PRECISION_DOWNGRADE")],
)  # fmt: skip
def test_the_same_values_answered_otherwise_are_named_whatever_the_answer_looks_like(
    looks_like: str, code: str
) -> None:
    answer = wrong().model_copy(update={"again": True, "looks_like": looks_like})
    report = judge(CheckFacts(comparisons=(right(), answer), planned=9), FINISHED, PLAN)
    assert report.code == code
    assert "right on the same values before" in report.summary


def test_a_binary_for_another_gpu_is_told_what_to_drop() -> None:
    error = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"
    facts = CheckFacts(planned=3, fault=Fault(kind="raised", stage="forward", error=error))
    report = judge(facts, ChildExit(kind="finished"), CheckPlan())
    assert (report.verdict, report.code) == (Verdict.crashed, "CRASH")
    assert "drop -gencode and -arch flags" in report.summary


def test_an_earlier_answer_with_nan_in_it_is_a_replay() -> None:
    answer = wrong().model_copy(update={"problem": "nonfinite", "looks_like": "previous_output"})
    report = judge(CheckFacts(comparisons=(answer,), planned=9), FINISHED, PLAN)
    assert (report.verdict, report.code) == (Verdict.nonfinite, "OUTPUT_REPLAY")

"""A task is refused when doing nothing would pass on a workload, or when an honest answer could not be told."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tasks.model import Distribution, Task, Workload
from kernelgate.tasks.qualify import (
    FACTS_VERSION,
    Mutant,
    Qualification,
    ReferenceFacts,
    Trial,
    judge_task,
    read_facts,
)
from kernelgate.tasks.taskfile import OWN_AND_SMALL
from kernelgate.tasks.tolerance import OutputFacts

DRAWN: tuple[Distribution, ...] = ("normal", "uniform", "large")
WORKLOADS = ("tiny", "wide")
MUTANTS: tuple[Mutant, ...] = tuple(mutant for mutant in get_args(Mutant) if mutant != "half_inputs")
TASK = Task(
    name="t", title="T", group="g", source="", workloads=tuple(Workload(name=name) for name in WORKLOADS),
    distributions=DRAWN,
)  # fmt: skip


def reference(workload: str, distribution: Distribution, **changes: object) -> ReferenceFacts:
    facts = {"finite": True, "deterministic": True, "output_std": 1.0, "bytes_needed": 1024}
    return ReferenceFacts.model_validate({"workload": workload, "distribution": distribution, **facts, **changes})


REFERENCES = {(w, d): reference(w, d) for w in WORKLOADS for d in DRAWN}
TRIALS = {
    (m, w, d): Trial(mutant=m, workload=w, distribution=d, passes=False)
    for m in MUTANTS
    for w in WORKLOADS
    for d in DRAWN
}


def facts(
    references: dict[tuple[str, Distribution], ReferenceFacts] = REFERENCES,
    trials: dict[tuple[Mutant, str, Distribution], Trial] = TRIALS,
) -> Qualification:
    return Qualification(references=tuple(references.values()), trials=tuple(trials.values()))


def passing(*keys: tuple[Mutant, str, Distribution]) -> dict[tuple[Mutant, str, Distribution], Trial]:
    return TRIALS | {key: TRIALS[key].model_copy(update={"passes": True}) for key in keys}


def test_a_task_on_which_every_mutant_fails_everywhere_is_fit():
    fitness = judge_task(TASK, facts())
    assert (fitness.fit, fitness.problems, fitness.refused_because) == (True, (), "")
    assert fitness.distributions == DRAWN


def test_a_mutant_that_passes_on_every_distribution_of_one_workload_refuses_the_task():
    fitness = judge_task(TASK, facts(trials=passing(*(("zeros", "wide", d) for d in DRAWN))))
    assert not fitness.fit
    assert fitness.problems == (
        "mutant zeros (an answer of zeros) passes on workload wide with inputs drawn as normal, uniform, large: "
        "tighten [tolerance] in its task.toml, or add a distribution that tells them apart",
    )
    assert fitness.refused_because == fitness.problems[0]


def test_one_distribution_that_tells_a_mutant_apart_is_enough():
    assert judge_task(TASK, facts(trials=passing(("zeros", "wide", "normal"), ("zeros", "wide", "uniform")))).fit


def test_a_mutant_told_apart_only_where_the_reference_is_not_finite_is_not_told_apart():
    references = REFERENCES | {("wide", "large"): reference("wide", "large", finite=False, output_std=0.0)}
    assert judge_task(TASK, facts(references)).fit
    trials = passing(("zeros", "wide", "normal"), ("zeros", "wide", "uniform"))
    assert [p.split(" (")[0] for p in judge_task(TASK, facts(references, trials)).problems] == ["mutant zeros"]


def test_a_distribution_without_finite_answers_is_left_out_and_said():
    references = REFERENCES | {("wide", "large"): reference("wide", "large", finite=False, output_std=0.0)}
    fitness = judge_task(TASK, facts(references))
    assert (fitness.fit, fitness.distributions) == (True, ("normal", "uniform"))
    assert fitness.left_out == ("inputs drawn as 'large' do not count: the reference is not finite on wide",)


def test_a_reference_that_is_finite_nowhere_is_refused():
    references = {key: reference(*key, finite=False) for key in REFERENCES}
    fitness = judge_task(TASK, facts(references))
    assert fitness.problems == (
        "no answer of t can be judged under any of its distributions: the reference is not finite on tiny, wide",
    )
    assert len(fitness.left_out) == 3


def test_a_reference_that_changes_its_mind_is_refused():
    references = REFERENCES | {("tiny", "normal"): reference("tiny", "normal", deterministic=False)}
    fitness = judge_task(TASK, facts(references))
    assert fitness.problems[0].startswith(
        "the reference gives another answer the second time on workload tiny with inputs drawn as normal"
    )


def test_a_mutant_that_a_task_cannot_have_is_not_missed_but_zeros_are():
    assert judge_task(TASK, facts(trials={k: t for k, t in TRIALS.items() if k[0] == "zeros"})).fit
    without_zeros = judge_task(TASK, facts(trials={k: t for k, t in TRIALS.items() if k[0] != "zeros"}))
    assert without_zeros.problems == tuple(f"mutant zeros was not tried on workload {w}" for w in WORKLOADS)


def test_what_could_not_be_measured_is_no_evidence():
    assert judge_task(TASK, Qualification(error="KeyError: 'x'")).problems == (
        "the reference of t does not run: KeyError: 'x'",
    )
    assert judge_task(TASK, Qualification()).problems == (
        "nothing was measured of t: it has no workload for this device",
    )
    missing = {key: value for key, value in REFERENCES.items() if key != ("wide", "normal")}
    assert judge_task(TASK, facts(missing)).problems == (
        "the reference was not measured on workload wide with inputs drawn as normal",
    )


def test_a_task_that_needs_more_than_the_device_allows_is_refused_with_both_numbers():
    fitness = judge_task(TASK, Qualification(bytes_needed=3 << 30, bytes_allowed=2 << 30))
    assert fitness.refused_because.startswith("t needs 3,072 MiB and this device allows 2,048 MiB")


@pytest.mark.parametrize(
    ("sizes", "advice"),
    [
        ("", "it has no module constant that could be halved"),
        ("UNUSED = 4096\n", "it has no module constant that could be halved"),
        ("ROWS = 64\nuse(ROWS)\n", "halving ROWS is not enough"),
    ],
)
@pytest.mark.parametrize(("needed", "said"), [((64 << 20) + 1, "65 MiB"), (1 << 30, "1,024 MiB")])
def test_a_task_of_which_no_size_fits_is_told_where_to_put_its_sizes(sizes: str, advice: str, needed: int, said: str):
    task = TASK.model_copy(update={"source": sizes, "workloads": OWN_AND_SMALL})
    found = Qualification(error="too large", bytes_needed=needed, bytes_allowed=64 << 20)
    assert judge_task(task, found).problems == (
        f"t needs {said} and this device allows 64 MiB: {advice}; put its sizes into module constants (ROWS = 4096), "
        "or add a task.toml with workloads",
    )


def test_of_several_problems_the_refusal_gives_the_first_and_the_number():
    everywhere = passing(*TRIALS)
    fitness = judge_task(TASK, facts(trials=everywhere))
    assert len(fitness.problems) == len(MUTANTS) * len(WORKLOADS)
    assert fitness.refused_because.endswith(" (and 15 more: kernelgate tasks check shows all)")


@given(st.sets(st.sampled_from(sorted(TRIALS))))
def test_a_task_is_fit_exactly_if_no_mutant_passes_everywhere_on_a_workload(
    keys: set[tuple[Mutant, str, Distribution]],
):
    escaped = [(m, w) for m in MUTANTS for w in WORKLOADS if all((m, w, d) in keys for d in DRAWN)]
    fitness = judge_task(TASK, facts(trials=passing(*keys)))
    assert fitness.fit == (not escaped)
    assert len(fitness.problems) == len(escaped)


@pytest.mark.parametrize("model", [facts(), Qualification(error="x")])
def test_the_facts_survive_the_way_through_json(model: Qualification):
    assert Qualification.model_validate_json(model.model_dump_json()) == model


def calibrated(**changes: object) -> OutputFacts:
    found = {"path": "", "dtype": "float32", "source": "calibrated", "rms": 1.0, "rtol": 1e-4, "atol": 1e-6}
    return OutputFacts.model_validate({**found, **changes})


def with_outputs(**by_distribution: OutputFacts) -> dict[tuple[str, Distribution], ReferenceFacts]:
    return {
        (w, d): facts.model_copy(update={"outputs": (by_distribution.get(d, calibrated()),)})
        for (w, d), facts in REFERENCES.items()
    }


@pytest.mark.parametrize("mutant", MUTANTS)
def test_whatever_passes_is_named_with_what_to_do_about_it(mutant: Mutant):
    (problem,) = judge_task(TASK, facts(trials=passing(*((mutant, "wide", d) for d in DRAWN)))).problems
    assert problem.startswith(f"mutant {mutant} (")
    assert "passes on workload wide with inputs drawn as normal, uniform, large: " in problem
    assert len(problem.rpartition(": ")[2]) > 30


def test_a_distribution_where_the_reference_is_too_far_from_float64_does_not_count_and_is_not_bounded():
    fitness = judge_task(TASK, facts(with_outputs(large=calibrated(own_rel=0.5))))
    assert (fitness.fit, fitness.distributions) == (True, ("normal", "uniform"))
    assert fitness.left_out == (
        "inputs drawn as 'large' do not count: the reference's answer is mostly rounding on tiny, wide, by its float64 "
        "run: no error can be told",
    )
    assert {bound.distribution for bound in fitness.bounds} == {"normal", "uniform"}


def test_a_default_tolerance_is_trusted_on_the_main_distributions_only_and_noted():
    guessed = calibrated(source="default", why="it draws random numbers")
    task = TASK.model_copy(update={"distributions": (*DRAWN, "ones")})
    references = with_outputs(normal=guessed) | {
        (w, "ones"): reference(w, "ones", outputs=(guessed,)) for w in WORKLOADS
    }
    fitness = judge_task(task, facts(references))
    assert (fitness.fit, fitness.distributions) == (True, DRAWN)
    assert fitness.left_out == ("inputs drawn as 'ones' do not count: the tolerance is not calibrated on tiny, wide",)
    assert fitness.notes == (
        "its tolerance is the default of the dtype, not calibrated: it draws random numbers (workload wide)",
    )


def test_what_a_slow_reference_left_no_time_for_is_left_out_unless_it_is_needed():
    task = TASK.model_copy(update={"distributions": (*DRAWN, "ones")})
    fitness = judge_task(task, facts(REFERENCES | {("tiny", "ones"): reference("tiny", "ones")}))
    assert (fitness.fit, fitness.distributions) == (True, DRAWN)
    assert fitness.left_out == ("inputs drawn as 'ones' do not count: there was no time for them",)


def test_a_mutant_that_passes_at_halved_sizes_is_told_with_the_sizes():
    references = {
        key: found.model_copy(update={"made_small": True, "overrides": {"ROWS": 2}})
        for key, found in REFERENCES.items()
    }
    (problem,) = judge_task(TASK, facts(references, passing(*(("zeros", "tiny", d) for d in DRAWN)))).problems
    assert problem.endswith(
        ": if that is so only at these sizes (ROWS = 2), which were halved to fit, add a task.toml with workloads"
    )


def test_where_nan_is_asked_for_an_answer_with_nan_counts():
    task = TASK.model_copy(update={"distributions": ("nonfinite",)})
    references = {(w, "nonfinite"): reference(w, "nonfinite", finite=False, outputs=(calibrated(),)) for w in WORKLOADS}
    trials = [Trial(mutant="zeros", workload=w, distribution="nonfinite", passes=False) for w in WORKLOADS]
    fitness = judge_task(task, Qualification(references=tuple(references.values()), trials=tuple(trials)))
    assert (fitness.fit, len(fitness.bounds)) == (True, 2)


def test_what_was_found_goes_with_the_task_and_leaves_its_digest_alone():
    fitness = judge_task(TASK, facts(with_outputs()))
    judged = fitness.applied_to(TASK)
    bound = judged.bound("wide", "uniform", "")
    assert bound is not None
    assert (bound.rtol, bound.atol) == (1e-4, 1e-6)
    assert judged.bound("wide", "uniform", "[1]") is None
    assert judged.digest == TASK.digest


def test_a_check_that_does_not_accept_the_reference_is_the_tasks_fault():
    references = REFERENCES | {("tiny", "normal"): reference("tiny", "normal", refused_by_own_check="not sorted")}
    assert judge_task(TASK, facts(references)).problems == (
        "its own check() does not accept the reference's answer on workload tiny: not sorted",
    )


def test_facts_of_another_version_are_not_read():
    stored = facts().model_dump(mode="json")
    assert read_facts(stored) == facts()
    assert read_facts({**stored, "version": FACTS_VERSION - 1}) is None
    assert read_facts({key: value for key, value in stored.items() if key != "version"}) is None
    assert read_facts("nothing") is None


def ignored(workload: str, distribution: Distribution, *, passes: bool, effect: bool) -> Trial:
    return Trial(
        mutant="ignored", of="input 2", workload=workload, distribution=distribution, passes=passes, effect=effect
    )


def test_an_input_without_an_effect_anywhere_is_noted_and_one_with_an_effect_somewhere_is_not():
    others = {key: trial for key, trial in TRIALS.items() if trial.mutant != "ignored"}
    nowhere = [ignored(w, d, passes=True, effect=False) for w in WORKLOADS for d in DRAWN]
    inert = Qualification(references=tuple(REFERENCES.values()), trials=(*others.values(), *nowhere))
    fitness = judge_task(TASK, inert)
    assert (fitness.fit, fitness.problems) == (True, ())
    assert fitness.notes == (
        "no answer of its reference reacts to input 2 beyond its tolerance: a candidate that ignores it is right",
    )
    somewhere = [*nowhere[:-1], ignored("wide", "large", passes=False, effect=True)]
    assert not judge_task(TASK, inert.model_copy(update={"trials": (*others.values(), *somewhere)})).notes


def test_an_input_that_may_be_ignored_where_it_has_an_effect_makes_the_task_unfit():
    others = {key: trial for key, trial in TRIALS.items() if trial.mutant != "ignored"}
    swallowed = [ignored("wide", d, passes=True, effect=d == "large") for d in DRAWN]
    facts_ = Qualification(references=tuple(REFERENCES.values()), trials=(*others.values(), *swallowed))
    (problem,) = judge_task(TASK, facts_).problems
    assert problem.startswith("mutant ignored (the answer with input 2 as it was for another question) passes on")

"""A task is refused when doing nothing would pass on a workload, or when an honest answer could not be told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tasks.model import Distribution, Task, Workload
from kernelgate.tasks.qualify import Mutant, Qualification, ReferenceFacts, Trial, judge_task
from kernelgate.tasks.taskfile import OWN_AND_SMALL

DRAWN: tuple[Distribution, ...] = ("normal", "uniform", "large")
WORKLOADS = ("tiny", "wide")
MUTANTS: tuple[Mutant, ...] = ("zeros", "passthrough")
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
    assert fitness.problems == ("the reference of t is finite under none of its distributions",)
    assert len(fitness.left_out) == 3


def test_a_reference_that_changes_its_mind_is_refused():
    references = REFERENCES | {("tiny", "normal"): reference("tiny", "normal", deterministic=False)}
    fitness = judge_task(TASK, facts(references))
    assert fitness.problems[0].startswith(
        "the reference gives another answer the second time on workload tiny with inputs drawn as normal"
    )


def test_an_answer_that_never_varies_is_refused_and_one_that_varies_somewhere_is_not():
    constant = {("tiny", d): reference("tiny", d, output_std=0.0) for d in DRAWN}
    fitness = judge_task(TASK, facts(REFERENCES | constant))
    assert [problem.split(" on ")[0] for problem in fitness.problems] == ["the reference's answer"]
    assert judge_task(TASK, facts(REFERENCES | {("tiny", "normal"): constant["tiny", "normal"]})).fit


def test_a_task_without_an_input_of_the_answers_shape_needs_no_passthrough():
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
    missing = {key: value for key, value in REFERENCES.items() if key != ("wide", "uniform")}
    assert judge_task(TASK, facts(missing)).problems == (
        "the reference was not measured on workload wide with inputs drawn as uniform",
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
    assert len(fitness.problems) == 4
    assert fitness.refused_because.endswith(" (and 3 more: kernelgate tasks check shows all)")


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

"""Hostile candidates end as what they are, on the rung where they must; odd but legal ones pass."""

import dataclasses
import re

import pytest
from cases import CODES, FOLDER, HONEST, HOSTILE, NEVER, RUNGS, Case, cases
from court import TOOLS, Court

from kernelgate.budget.model import VERDICTS_OF

CHEATS = cases(HOSTILE)
LEGAL = cases(HONEST)
FEWEST_LEGAL = 25
TIMED = ("workspace_reused", "more_precise", "weight_packed", "atomic_order", "prints")
"""Legal ones that are timed in each run; the others in the long ones."""
BESIDE_THE_ANSWER = frozenset({"suspicious", "impossible"})


def params(chosen: list[Case], *, long: bool = False) -> list[object]:
    """Those that run on a CPU; variants and dear ones among the long tests."""
    marks = {True: (pytest.mark.long,), False: ()}
    return [pytest.param(c, id=c.name, marks=marks[c.long or long]) for c in chosen if c.device != "gpu"]


def test_every_class_has_a_candidate_that_tries_it() -> None:
    assert {case.code for case in CHEATS} == set(CODES)


def test_every_class_that_a_cpu_can_show_has_one_in_each_run() -> None:
    on_a_gpu_only = {"WRONG_STREAM", "L2_PERSIST", "GRAPH_STALE", "IMPOSSIBLE"}
    slow_ones = {"NO_GAIN"}
    always = {case.code for case in CHEATS if case.device != "gpu" and not case.long}
    assert set(CODES) - always == on_a_gpu_only | slow_ones


def test_the_threat_model_says_why_of_just_those_codes_that_no_verdict_carries() -> None:
    root = FOLDER.parents[1]
    page = (root / "docs" / "threat-model.md").read_text(encoding="utf-8")
    table = page.partition("**Codes that no verdict carries.**")[2].partition("## The walls")[0]
    first_column = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    judging = [path for folder in ("tools", "server") for path in (root / folder).rglob("*.py")]
    sources = "".join(path.read_text(encoding="utf-8") for path in judging)
    assert {name for cell in first_column for name in re.findall(r"[A-Z0-9_]+", cell)} == {
        code for code in CODES if f'"{code}"' not in sources
    }


@pytest.mark.parametrize("case", CHEATS, ids=lambda case: case.name)
def test_a_head_names_verdicts_that_its_rungs_have_and_none_that_a_trick_must_not_reach(case: Case) -> None:
    possible = {str(verdict) for tool in RUNGS[case.rung] for verdict in VERDICTS_OF[TOOLS[tool].rung]}
    verdicts = {said.partition(":")[0] for said in case.accept}
    codes = {said.partition(":")[2] for said in case.accept} - {""}
    assert verdicts
    assert verdicts <= possible - NEVER - {"correct", "built"}
    assert codes <= set(CODES)
    assert case.tries.endswith(".")
    compile(case.files["candidate.py"], case.name, "exec")


@pytest.mark.parametrize("case", params(CHEATS))
def test_a_trick_ends_as_what_it_is(court: Court, case: Case) -> None:
    before = court.family()
    steps = court.climb(case)
    last = steps[-1]
    assert case.accepts(last.verdict, last.code), [(step.tool, step.verdict, step.code, step.summary) for step in steps]
    if last.verdict in BESIDE_THE_ANSWER:
        assert last.code
        assert len(re.findall(r"[a-z]+", last.summary)) >= 8, "it explains itself to a person"
    if case.log_limit:
        assert len(last.reply.log) <= case.log_limit
    assert not before or court.family() <= before, "nothing that it started is left"


@pytest.mark.parametrize("case", params(LEGAL))
def test_odd_but_legal_candidates_are_right(court: Court, case: Case) -> None:
    last = court.climb(case)[-1]
    assert (last.verdict, last.code) == ("correct", None), last.summary


@pytest.mark.parametrize("case", [*params([c for c in LEGAL if c.name in TIMED]),
                                  *params([c for c in LEGAL if c.name not in TIMED], long=True)])  # fmt: skip
def test_odd_but_legal_candidates_are_timed_without_suspicion(court: Court, case: Case) -> None:
    steps = court.climb(dataclasses.replace(case, rung="quick"))
    assert [step.verdict for step in steps if not step.passed] == [], [step.summary for step in steps]


def test_there_are_enough_legal_candidates() -> None:
    assert len(LEGAL) >= FEWEST_LEGAL
    assert all(case.tries.endswith(".") and not case.code and not case.accept for case in LEGAL)

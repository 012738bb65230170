"""Which candidates are named as parents, and how their structure is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.kit.book import CandidateRow
from kernelgate.tools.kit.parents import Structure, distance, lineage, parents

FUSED = Structure(language="triton", kernels=1, features=("autotune",), tiles=("BLOCK 1024",))
SPLIT = Structure(language="triton", kernels=3, features=("atomics",), tiles=("BLOCK 64",))
PLAIN = Structure(language="torch", kernels=0, features=("softmax",))
structures = st.builds(
    Structure,
    language=st.sampled_from(["torch", "triton", "cuda"]),
    kernels=st.integers(0, 3),
    features=st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(tuple),
    tiles=st.lists(st.sampled_from(["X 1", "Y 2"]), unique=True).map(tuple),
)


def row(number: int, verdict: str = "faster", furthest: str = "precise", parent: int | None = None) -> CandidateRow:
    return CandidateRow(
        candidate_id=f"c{number}", parent_id=None if parent is None else f"c{parent}", note="", language="triton",
        furthest=furthest, verdict=verdict,
    )  # fmt: skip


def chosen(rows: list[CandidateRow], structures: dict[str, Structure], limit: int = 20) -> list[tuple[str, str]]:
    return [(parent.candidate_id, parent.why) for parent in parents(rows, structures, limit)]


def test_the_best_comes_first_and_then_the_best_of_what_is_least_like_it() -> None:
    rows = [row(4), row(2), row(7), row(1)]
    alike = {"c4": FUSED, "c2": FUSED, "c7": SPLIT, "c1": PLAIN}
    assert chosen(rows, alike) == [
        ("c4", "the best so far"),
        ("c1", "unlike c4: torch for triton, no kernel of its own for 1, "
         "with softmax, without autotune, cut by no constants"),
        ("c7", "unlike c4: 3 kernels for 1, with atomics, without autotune, cut by BLOCK 64"),
    ]  # fmt: skip
    assert len(chosen(rows, alike, limit=2)) == 2


@pytest.mark.parametrize(
    ("verdict", "furthest"), [("wrong_values", "check"), ("crashed", "quick"), ("built", "compile"), ("", "")]
)
def test_what_failed_or_was_not_checked_is_no_parent(verdict: str, furthest: str) -> None:
    assert chosen([row(1, verdict, furthest)], {"c1": FUSED}) == []


@pytest.mark.parametrize(
    ("verdict", "furthest"), [("correct", "check"), ("clearly_slower", "quick"), ("same", "precise")]
)
def test_a_slow_candidate_of_another_structure_is_a_parent_too(verdict: str, furthest: str) -> None:
    rows = [row(1), row(2, verdict, furthest)]
    assert [name for name, _ in chosen(rows, {"c1": FUSED, "c2": SPLIT})] == ["c1", "c2"]


def test_parents_carry_their_structure_in_words_and_their_line() -> None:
    rows = [row(3, parent=2), row(2, parent=1), row(1)]
    (best,) = parents(rows, {"c1": FUSED, "c2": FUSED, "c3": FUSED}, 20)
    assert best.structure == "triton, 1 kernel, BLOCK 1024; autotune"
    assert best.lineage == "c1 > c2 > c3"
    assert PLAIN.told == "torch; softmax"


def test_a_long_line_shows_its_latest_part() -> None:
    parent_of = {f"c{n}": f"c{n - 1}" if n > 1 else None for n in range(1, 41)}
    assert lineage("c40", parent_of) == "… > c35 > c36 > c37 > c38 > c39 > c40"


@given(one=structures, other=structures)
def test_a_distance_is_zero_for_the_same_structure_alone_and_the_same_both_ways(
    one: Structure, other: Structure
) -> None:
    def parts(structure: Structure) -> tuple[object, ...]:
        return structure.language, structure.kernels, set(structure.features), set(structure.tiles)

    assert distance(one, other) == distance(other, one)
    assert (distance(one, other) == 0) == (parts(one) == parts(other))


@given(kinds=st.lists(structures, max_size=12), limit=st.integers(1, 20))
def test_parents_are_all_different_the_best_of_their_kind_and_within_the_limit(
    kinds: list[Structure], limit: int
) -> None:
    rows = [row(number) for number in range(1, len(kinds) + 1)]
    known = {f"c{number}": kind for number, kind in enumerate(kinds, 1)}
    names = [name for name, _ in chosen(rows, known, limit)]
    assert len(names) == len(set(names)) <= limit
    if kinds:
        assert names[0] == "c1"
    for place, name in enumerate(names):
        assert all(distance(known[name], known[other]) > 0 for other in names[:place])
        older = [other.candidate_id for other in rows[: int(name[1:]) - 1]]
        assert all(distance(known[name], known[other]) > 0 for other in older), "the best of its kind"

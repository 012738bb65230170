"""Which candidates are worth mutating: the best, and the best of each other structure, farthest first. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import BeforeValidator

from kernelgate.budget.model import PASSING, CandidateId, Rung, as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import CandidateRow

SHOWN_ANCESTORS: Final = 6
SHOWN_FEATURES: Final = 5
Words = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


class Structure(Frozen):
    """What kind of code a candidate is, whatever its speed."""

    language: str
    kernels: int
    """Of its own: those that its build compiled, else those that its source defines."""
    features: Words = ()
    tiles: Words = ()
    """Constants by which the work is cut: `BLOCK_M 64`."""
    near_duplicate_of: CandidateId | None = None
    """The first candidate of the run with the same code up to comments, layout and local names."""

    @property
    def told(self) -> str:
        """In a few words: `triton, 1 kernel, BLOCK 1024; autotune`."""
        parts = [self.language, _count(self.kernels), *self.tiles[:SHOWN_FEATURES]]
        features = "; " + ", ".join(self.features[:SHOWN_FEATURES]) if self.features else ""
        return ", ".join(part for part in parts if part) + features


def distance(one: Structure, other: Structure) -> float:
    """0 for the same structure; language weighs most, then kernels and features, then tiles."""
    return (
        2.0 * (one.language != other.language)
        + 1.0 * (one.kernels != other.kernels)
        + 1.0 * _apart(one.features, other.features)
        + 0.5 * _apart(one.tiles, other.tiles)
    )


def parents(
    ranked: Sequence[CandidateRow], structures: Mapping[CandidateId, Structure], limit: int
) -> tuple[CandidateRow, ...]:
    """The best candidate, then the one least like those chosen, and so on; each with structure, lineage and why.

    Args:
        ranked: all candidates of a run, best first. Those that failed their last rung are no parents.
        structures: of each of them.
        limit: how many at most; fewer where the rest is built like one that was chosen.
    """
    able = [row for row in ranked if row.verdict and row.furthest != Rung.compile and _passed(row)]
    chosen: list[CandidateRow] = []
    nearest: dict[CandidateId, tuple[float, CandidateId]] = {}
    while able and len(chosen) < limit:
        # The first of equals is the best of them: `able` stays in order of rank.
        following = max(able, key=lambda row: nearest[row.candidate_id][0]) if chosen else able[0]
        if chosen and nearest[following.candidate_id][0] == 0:
            break
        why = "the best so far"
        if chosen:
            like = nearest[following.candidate_id][1]
            why = _contrast(structures[following.candidate_id], structures[like], like)
        chosen.append(_with_kin(following, ranked, structures[following.candidate_id], why))
        able.remove(following)
        for row in able:
            near = distance(structures[row.candidate_id], structures[following.candidate_id])
            if row.candidate_id not in nearest or near < nearest[row.candidate_id][0]:
                nearest[row.candidate_id] = near, following.candidate_id
    return tuple(chosen)


def lineage(candidate_id: CandidateId, parent_of: Mapping[CandidateId, CandidateId | None]) -> str:
    """From the first ancestor down: `c1 > c4 > c7`; of a long line the latest."""
    line = [candidate_id]
    while (parent := parent_of.get(line[0])) is not None and parent not in line:
        line.insert(0, parent)
    cut = ["…"] if len(line) > SHOWN_ANCESTORS else []
    return " > ".join([*cut, *line[-SHOWN_ANCESTORS:]])


def _passed(row: CandidateRow) -> bool:
    return any(row.verdict == verdict for verdict in PASSING[Rung(row.furthest)])


def _with_kin(row: CandidateRow, rows: Sequence[CandidateRow], structure: Structure, why: str) -> CandidateRow:
    line = lineage(row.candidate_id, {other.candidate_id: other.parent_id for other in rows})
    return row.model_copy(update={"structure": structure.told, "lineage": line if row.parent_id else "", "why": why})


def _contrast(one: Structure, other: Structure, name: CandidateId) -> str:
    """What sets a structure apart from that of the named candidate."""
    said: list[str] = []
    if one.language != other.language:
        said.append(f"{one.language} for {other.language}")
    if one.kernels != other.kernels:
        said.append(f"{_count(one.kernels) or 'no kernel of its own'} for {other.kernels}")
    said += [f"with {feature}" for feature in one.features if feature not in other.features][:2]
    said += [f"without {feature}" for feature in other.features if feature not in one.features][:2]
    if one.tiles != other.tiles:
        said.append(f"cut by {', '.join(one.tiles[:SHOWN_FEATURES]) or 'no constants'}")
    return f"unlike {name}: {', '.join(said)}"


def _count(kernels: int) -> str:
    return "" if kernels == 0 else f"{kernels} kernel{'s' if kernels > 1 else ''}"


def _apart(one: Sequence[str], other: Sequence[str]) -> float:
    """1 less what both have, as a share of what either has."""
    either = set(one) | set(other)
    return 1.0 - len(set(one) & set(other)) / len(either) if either else 0.0

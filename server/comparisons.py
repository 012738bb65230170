"""What a precisely timed candidate is against the others: the user's own kernel, and the best of the run so far."""

from typing import Final, NamedTuple, Protocol

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Rung, Verdict
from kernelgate.budget.promotion import order_of
from kernelgate.budget.records import CandidateRecord, RunRecord
from kernelgate.tasks.model import ENTRY_FILE, Candidate, canonical_json
from kernelgate.tools.kit.moved import moved
from kernelgate.tools.profile import ProfileReport

CONSERVATIVE: Final = "conservative, made of the ends of both intervals: the two were not timed against each other"
"""Of the interval of each `Gain`."""


class Gain(NamedTuple):
    """Own kernel's time / candidate's time, with an interval: above 1 the candidate is faster."""

    ratio: float
    low: float
    high: float


class Ratio(Protocol):
    """What was timed against the baseline."""

    @property
    def ratio(self) -> float:
        """Baseline time / its time."""
        ...

    @property
    def low(self) -> float:
        """Of its interval."""
        ...

    @property
    def high(self) -> float:
        """Of its interval."""
        ...


def gain(candidate: Ratio, own: Ratio) -> Gain:
    """The ratio of two ratios to the same baseline; its interval goes to the far ends of both, so it is too wide."""
    return Gain(candidate.ratio / own.ratio, candidate.low / own.high, candidate.high / own.low)


def as_fast_as(what: str, candidate: Ratio, other: Ratio) -> str:
    """Part of a sentence behind `it is`; empty where the other's interval reaches down to nothing."""
    if other.low <= 0:
        return ""
    found = gain(candidate, other)
    return f"{found.ratio:.3f}x as fast as {what}, between {found.low:.3f}x and {found.high:.3f}x"


def with_caution(said: str) -> str:
    """With what is to be known of an interval, where it has one."""
    return f"{said} ({CONSERVATIVE})" if " between " in said else said


def against_own_kernel(ledger: Ledger, run: RunRecord, candidate_id: str) -> str:
    """What a precisely timed candidate of a run is against the user's own kernel, behind its id and `is`.

    Empty where the task names no kernel, or where one of the two has no precise ratio in the run's environment.
    """
    own_id = _own_id(ledger, run)
    if own_id is None:
        return ""
    if candidate_id == own_id:
        return "your own kernel"
    timed = {scored.candidate_id: scored for scored in ledger.history(run.run_id).precise}
    if own_id not in timed or candidate_id not in timed:
        return ""
    return as_fast_as(f"your own kernel {own_id}", timed[candidate_id], timed[own_id])


def against_the_best(ledger: Ledger, run: RunRecord, candidate_id: str) -> str:
    """What it is against the fastest other candidate that is proven faster than the baseline; as `against_own_kernel`.

    Empty where there is none, or where that is the user's own kernel.
    """
    precise = ledger.history(run.run_id).precise
    mine = next((scored for scored in precise if scored.candidate_id == candidate_id), None)
    others = [s for s in precise if s.candidate_id != candidate_id and s.verdict is Verdict.faster]
    if mine is None or not others:
        return ""
    best = min(others, key=order_of)
    return "" if best.candidate_id == _own_id(ledger, run) else as_fast_as(best.candidate_id, mine, best)


def times_measured(ledger: Ledger, candidate_id: str, environment_id: str) -> str:
    """Part of a sentence about a candidate that was timed precisely more than once in an environment; else empty.

    Each measurement is in the book, and the last one stands: who measured until the luckiest came shows here.
    """
    results = [r for r in ledger.results(candidate_id) if r.rung is Rung.precise and r.environment_id == environment_id]
    ratios = [result.ratio for result in results if result.ratio is not None]
    if len(ratios) < 2:
        return ""
    return f"measured {len(ratios)} times here, from {min(ratios):.3f}x to {max(ratios):.3f}x"


def profile_moved(ledger: Ledger, run: RunRecord, candidate: CandidateRecord) -> str:
    """What moved since the profile of a candidate's parent or, if that has none, of the best so far; else empty."""
    mine = _profiled(ledger, run, candidate.candidate_id)
    best = ledger.incumbent(run.run_id, run.environment_id)
    others = [candidate.parent_id, None if best is None else best.candidate_id]
    for other_id in others:
        other = None if other_id in (None, candidate.candidate_id) else _profiled(ledger, run, str(other_id))
        if mine is not None and other is not None and (told := moved(other, mine)):
            return f"against {other_id}: {told}"
    return ""


def _profiled(ledger: Ledger, run: RunRecord, candidate_id: str) -> ProfileReport | None:
    """The latest profile of a candidate in the run's environment that came to an end."""
    ended = [
        result for result in ledger.results(candidate_id)
        if result.rung is Rung.profile and result.environment_id == run.environment_id
        and result.verdict in (Verdict.diagnosed, Verdict.no_finding)
    ]  # fmt: skip
    return ProfileReport.model_validate_json(canonical_json(ended[-1].report)) if ended else None


def _own_id(ledger: Ledger, run: RunRecord) -> str | None:
    source = ledger.task(run.task_digest).spec.get("baseline_kernel")
    if not isinstance(source, str):
        return None
    digest = Candidate(files={ENTRY_FILE: source}).digest
    known = "SELECT candidate_id FROM candidates WHERE run_id = ? AND source_sha256 = ?"
    rows = ledger.query(known, run.run_id, digest)
    return str(rows[0]["candidate_id"]) if rows else None

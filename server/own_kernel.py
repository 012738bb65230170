"""How much faster a candidate is than the user's own kernel, where the task names one."""

from typing import Final, NamedTuple, Protocol

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.records import RunRecord
from kernelgate.tasks.model import ENTRY_FILE, Candidate

CONSERVATIVE: Final = "conservative, made of the ends of both intervals: the two were not timed against each other"


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


def compared(ledger: Ledger, run: RunRecord, candidate_id: str) -> str:
    """What a precisely timed candidate of a run is against the user's own kernel, behind its id and `is`.

    Empty where the task names no kernel, or where one of the two has no precise ratio in the run's environment.
    """
    own_id = _own_id(ledger, run)
    if own_id is None:
        return ""
    if candidate_id == own_id:
        return "your own kernel"
    timed = {scored.candidate_id: scored for scored in ledger.history(run.run_id).precise}
    if own_id not in timed or candidate_id not in timed or timed[own_id].low <= 0:
        return ""
    found = gain(timed[candidate_id], timed[own_id])
    interval = f"between {found.low:.3f}x and {found.high:.3f}x ({CONSERVATIVE})"
    return f"{found.ratio:.3f}x as fast as your own kernel {own_id}, {interval}"


def _own_id(ledger: Ledger, run: RunRecord) -> str | None:
    source = ledger.task(run.task_digest).spec.get("baseline_kernel")
    if not isinstance(source, str):
        return None
    digest = Candidate(files={ENTRY_FILE: source}).digest
    known = "SELECT candidate_id FROM candidates WHERE run_id = ? AND source_sha256 = ?"
    rows = ledger.query(known, run.run_id, digest)
    return str(rows[0]["candidate_id"]) if rows else None

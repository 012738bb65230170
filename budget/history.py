"""What a rule may look at, folded from a run's timing results. Pure: the ledger and the audit use the same fold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelgate.budget.model import PASSING, History, Purse, Rung, Scored, Verdict


@dataclass(frozen=True, slots=True)
class Timing:
    """One result of quick or precise, also a failed one; in the order of `seq`."""

    rung: Rung
    candidate_id: str
    verdict: Verdict
    ratio: float | None
    low: float | None
    high: float | None
    device_s: float
    seq: int

    def scored(self) -> Scored | None:
        """As a rule sees it; None where the result has no ratio or did not pass."""
        if self.verdict not in PASSING[self.rung] or self.ratio is None or self.low is None or self.high is None:
            return None
        return Scored(
            candidate_id=self.candidate_id,
            ratio=self.ratio,
            low=self.low,
            high=self.high,
            verdict=self.verdict,
            device_s=self.device_s,
            seq=self.seq,
        )


def fold_history(timings: Sequence[Timing], overlap_seqs: Iterable[int], purse: Purse, last_seq: int) -> History:
    """Fold results into a history: per candidate the latest counts, and it counts only if it passed.

    Args:
        timings: of one run in one environment, in order of `seq`.
        overlap_seqs: holds at precise that were admitted by interval overlap and not released.
        purse: of the run.
        last_seq: last event of the book.
    """
    improved_seq = last_improvement(timings)
    return History(
        quick=_latest(timings, Rung.quick),
        precise=_latest(timings, Rung.precise),
        overlap_admissions=sum(seq > improved_seq for seq in overlap_seqs),
        precise_calls_left=max(0, purse.calls_left(Rung.precise)),
        overrides_left=max(0, purse.overrides_left),
        last_seq=last_seq,
    )


def last_improvement(timings: Iterable[Timing]) -> int:
    """The event at which another candidate last became the incumbent; the same one measured again is no improvement."""
    best: Timing | None = None
    improved_seq = 0
    for timing in timings:
        if timing.rung is not Rung.precise or timing.verdict is Verdict.ambiguous or timing.scored() is None:
            continue
        if best is None or (timing.ratio or 0.0) > (best.ratio or 0.0):
            if best is None or timing.candidate_id != best.candidate_id:
                improved_seq = timing.seq
            best = timing
    return improved_seq


def _latest(timings: Iterable[Timing], rung: Rung) -> tuple[Scored, ...]:
    latest: dict[str, Timing] = {}
    for timing in timings:
        if timing.rung is rung:
            latest.pop(timing.candidate_id, None)  # back to the end, so that the order stays that of seq
            latest[timing.candidate_id] = timing
    return tuple(scored for timing in latest.values() if (scored := timing.scored()) is not None)

"""What a rule may look at, folded from a run's timing results. Pure: the ledger and the audit use the same fold."""

from collections.abc import Iterable
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


class Fold:
    """Timing results folded one by one, in order of `seq`: per candidate the latest counts, and only if it passed."""

    def __init__(self) -> None:
        self._latest: dict[Rung, dict[str, Scored | None]] = {Rung.quick: {}, Rung.precise: {}}
        self._best: Scored | None = None
        self.improved_seq = 0
        """The event at which another candidate last became the incumbent; the same one again is no improvement."""

    def add(self, timing: Timing) -> None:
        """Go on by one result."""
        scored, latest = timing.scored(), self._latest[timing.rung]
        latest.pop(timing.candidate_id, None)  # back to the end, so that the order stays that of seq
        latest[timing.candidate_id] = scored
        if timing.rung is not Rung.precise or scored is None or timing.verdict is Verdict.ambiguous:
            return
        best = self._best
        if best is None or scored.ratio > best.ratio:
            if best is None or scored.candidate_id != best.candidate_id:
                self.improved_seq = timing.seq
            self._best = scored

    def history(self, overlap_seqs: Iterable[int], purse: Purse, last_seq: int) -> History:
        """What a rule may look at now.

        Args:
            overlap_seqs: holds at precise that were admitted by interval overlap and not released.
            purse: of the run.
            last_seq: last event of the book.
        """
        return History(
            quick=self._passing(Rung.quick),
            precise=self._passing(Rung.precise),
            overlap_admissions=sum(seq > self.improved_seq for seq in overlap_seqs),
            precise_calls_left=max(0, purse.calls_left(Rung.precise)),
            overrides_left=max(0, purse.overrides_left),
            last_seq=last_seq,
        )

    def _passing(self, rung: Rung) -> tuple[Scored, ...]:
        return tuple(scored for scored in self._latest[rung].values() if scored is not None)


def fold_history(timings: Iterable[Timing], overlap_seqs: Iterable[int], purse: Purse, last_seq: int) -> History:
    """All timing results of one run in one environment, in order of `seq`, as a history; see `Fold`."""
    fold = Fold()
    for timing in timings:
        fold.add(timing)
    return fold.history(overlap_seqs, purse, last_seq)

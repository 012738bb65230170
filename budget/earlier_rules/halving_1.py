"""Version 1 of asynchronous successive halving, under which runs began until December 2026.

After Li et al., A System for Massively Parallel Hyperparameter Tuning (MLSys 2020), with one rung guarded: quick to
precise. Beside the rank, an interval that still overlaps the incumbent's is admitted, twice between improvements,
because quick intervals are wide and the true best may hide in them.
"""

from collections.abc import Mapping
from typing import Final

from kernelgate.budget.model import Decision, History, Promotion, Rung, Verdict
from kernelgate.budget.promotion import Rule, Seen, conclude, incumbent_of, order_of

VERSION: Final = 1
DEFAULTS: Final = {"eta": 3.0, "overlap_limit": 2.0}
"""`eta`: one in so many is promoted. `overlap_limit`: admissions by overlap until the incumbent improves."""
LIMITS: Final = {"eta": (2.0, 100.0), "overlap_limit": (0.0, 1000.0)}


class HalvingSeen(Seen):
    """What halving looks at."""

    n: int
    """Candidates measured at quick."""
    rank: int
    """Of the candidate among them, 1 is best; 0 if it was not measured."""
    cut: int
    """Ranks up to this one are admitted."""
    own_ratio: float = 0.0
    own_low: float = 0.0
    own_high: float = 0.0
    own_verdict: Verdict | None = None
    incumbent_id: str | None = None
    incumbent_low: float = 0.0
    overlap_admissions: int
    """Since the incumbent last improved."""


def observe(history: History, request: Promotion, parameters: Mapping[str, float]) -> HalvingSeen:
    """Reduce the history to what the rule looks at."""
    ranked = sorted(history.quick, key=order_of)
    rank = next((i for i, scored in enumerate(ranked, 1) if scored.candidate_id == request.candidate_id), 0)
    own = ranked[rank - 1] if rank else None
    incumbent = incumbent_of(history)
    return HalvingSeen(
        candidate_id=request.candidate_id,
        rung=request.rung,
        override_asked=request.override_reason is not None,
        overrides_left=history.overrides_left,
        last_seq=history.last_seq,
        n=len(ranked),
        rank=rank,
        cut=max(1, int(len(ranked) / parameters["eta"])),
        own_ratio=own.ratio if own else 0.0,
        own_low=own.low if own else 0.0,
        own_high=own.high if own else 0.0,
        own_verdict=own.verdict if own else None,
        incumbent_id=incumbent.candidate_id if incumbent else None,
        incumbent_low=incumbent.low if incumbent else 0.0,
        overlap_admissions=history.overlap_admissions,
    )


def decide_from(seen: HalvingSeen, parameters: Mapping[str, float]) -> Decision:
    """Decide from the compact input alone."""
    admit, why, missing = _answer(seen, parameters)
    return conclude("halving", VERSION, seen, parameters, admit=admit, why=why, missing=missing)


def _answer(seen: HalvingSeen, parameters: Mapping[str, float]) -> tuple[bool, str, str]:
    who = seen.candidate_id
    if seen.rung is not Rung.precise:
        return True, f"Only {Rung.precise} is guarded; {who} may enter {seen.rung}.", ""
    if seen.own_verdict is None:
        return False, f"{who} has no quick result in this environment.", "A quick result of this candidate."
    own = f"{seen.own_ratio:.3f} (interval {seen.own_low:.3f} to {seen.own_high:.3f})"
    if seen.own_verdict is Verdict.clearly_slower:
        why = f"{who} is clearly slower than the baseline at quick: ratio {own}."
        return False, why, "A quick interval that reaches 1.0: make the candidate faster first."
    place = f"{who} ranks {seen.rank} of {seen.n} at quick with ratio {own}"
    if seen.rank <= seen.cut:
        return True, f"{place}; the best {seen.cut} may be measured precisely.", ""
    rank_missing = f"rank {seen.cut} or better of {seen.n}"
    if seen.incumbent_id is None:
        return False, f"{place}; only the best {seen.cut} may be measured precisely.", f"A {rank_missing}."
    bar = f"the lower bound {seen.incumbent_low:.3f} of the incumbent {seen.incumbent_id}"
    if seen.own_high <= seen.incumbent_low:
        why = f"{place}, outside the best {seen.cut}, and its upper bound does not exceed {bar}."
        return False, why, f"A {rank_missing}, or an upper bound above {seen.incumbent_low:.3f}."
    used = f"{seen.overlap_admissions} of {parameters['overlap_limit']:g} admissions by overlap"
    if seen.overlap_admissions >= parameters["overlap_limit"]:
        why = f"{place}, outside the best {seen.cut}; it overlaps {bar}, but {used} are used."
        return False, why, f"A {rank_missing}, or a better incumbent, after which overlaps are admitted again."
    return True, f"{place}; its upper bound exceeds {bar}, and only {used} were used.", ""


RULE: Final = Rule("halving", VERSION, DEFAULTS, LIMITS, HalvingSeen, observe, decide_from)

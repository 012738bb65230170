"""Asynchronous successive halving: the best share of what was measured at quick may be measured precisely.

After Li et al., A System for Massively Parallel Hyperparameter Tuning (MLSys 2020), with one rung guarded: quick to
precise. Beside the rank, an interval that still overlaps the incumbent's is admitted, so often between improvements,
because quick intervals are wide and the true best may hide in them.

Quick times fewer workloads than precise, so it may flatter some candidates, or all. An incumbent is overlapped where
either rung says so; and where the pairs that precise tells apart show that quick ranks badly, more are let in
(`wide_eta`). The defaults come from a simulation: docs/decisions/0028-the-defaults-of-halving.md.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from kernelgate.budget.model import Decision, History, Promotion, Rung, Scored, Verdict
from kernelgate.budget.promotion import Rule, Seen, conclude, incumbent_of, order_of

VERSION: Final = 2
DEFAULTS: Final = {
    "eta": 4.0,
    "bootstrap": 0.0,
    "overlap_limit": 2.0,
    "wide_eta": 2.0,
    "disorder_bound": 0.2,
    "disorder_pairs": 6.0,
}
"""`eta`: one in so many is promoted. `bootstrap`: until so many were measured at quick, all of them are.
`overlap_limit`: admissions by overlap until the incumbent improves. `wide_eta`: in the place of `eta` where quick ranks
badly, with more than the share `disorder_bound` of at least `disorder_pairs` pairs the other way."""
LIMITS: Final = {
    "eta": (1.0, 100.0),
    "bootstrap": (0.0, 1000.0),
    "overlap_limit": (0.0, 1000.0),
    "wide_eta": (1.0, 100.0),
    "disorder_bound": (0.0, 1.0),
    "disorder_pairs": (1.0, 1_000_000.0),
}
LATEST: Final = 64
"""Precise results whose pairs are looked at: an admission holds the book's lock, and pairs grow with the square."""


class HalvingSeen(Seen):
    """What halving looks at."""

    n: int
    """Candidates measured at quick."""
    rank: int
    """Of the candidate among them, 1 is best; 0 if it was not measured."""
    cut: int
    """Ranks up to this one are admitted."""
    pairs: int
    """Pairs of candidates whose precise intervals do not overlap."""
    disordered: int
    """Of them those that quick's ratios order the other way."""
    own_ratio: float = 0.0
    own_low: float = 0.0
    own_high: float = 0.0
    own_verdict: Verdict | None = None
    incumbent_id: str | None = None
    incumbent_low: float = 0.0
    """The lower one of its lower bounds at precise and at quick."""
    overlap_admissions: int
    """Since the incumbent last improved."""


def observe(history: History, request: Promotion, parameters: Mapping[str, float]) -> HalvingSeen:
    """Reduce the history to what the rule looks at."""
    ranked = sorted(history.quick, key=order_of)
    rank = next((i for i, scored in enumerate(ranked, 1) if scored.candidate_id == request.candidate_id), 0)
    own = ranked[rank - 1] if rank else None
    incumbent = incumbent_of(history)
    at_quick = {scored.candidate_id: scored for scored in history.quick}
    pairs, disordered = _disorder(history.precise, at_quick)
    known = [incumbent, at_quick.get(incumbent.candidate_id, incumbent)] if incumbent else []
    return HalvingSeen(
        candidate_id=request.candidate_id,
        rung=request.rung,
        override_asked=request.override_reason is not None,
        overrides_left=history.overrides_left,
        last_seq=history.last_seq,
        n=len(ranked),
        rank=rank,
        cut=_cut(len(ranked), pairs, disordered, parameters),
        pairs=pairs,
        disordered=disordered,
        own_ratio=own.ratio if own else 0.0,
        own_low=own.low if own else 0.0,
        own_high=own.high if own else 0.0,
        own_verdict=own.verdict if own else None,
        incumbent_id=incumbent.candidate_id if incumbent else None,
        incumbent_low=min((scored.low for scored in known), default=0.0),
        overlap_admissions=history.overlap_admissions,
    )


def _disorder(precise: Sequence[Scored], at_quick: Mapping[str, Scored]) -> tuple[int, int]:
    """Pairs that precise tells apart, and of them those that quick has the other way round."""
    both = [
        (scored, at_quick[scored.candidate_id])
        for scored in precise
        if scored.verdict is not Verdict.ambiguous and scored.candidate_id in at_quick
    ][-LATEST:]
    pairs = disordered = 0
    for (one, one_quick), (other, other_quick) in combinations(both, 2):
        if one.high < other.low or other.high < one.low:
            pairs += 1
            disordered += (one.ratio - other.ratio) * (one_quick.ratio - other_quick.ratio) < 0
    return pairs, disordered


def _is_disordered(pairs: int, disordered: int, parameters: Mapping[str, float]) -> bool:
    return pairs >= parameters["disorder_pairs"] and disordered > parameters["disorder_bound"] * pairs


def _cut(n: int, pairs: int, disordered: int, parameters: Mapping[str, float]) -> int:
    if n <= parameters["bootstrap"]:
        return max(1, n)
    eta = parameters["eta"]
    if _is_disordered(pairs, disordered, parameters):
        eta = min(eta, parameters["wide_eta"])
    return max(1, int(n / eta))


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
    best = f"the best {seen.cut} may be measured precisely{_widened(seen, parameters)}"
    if seen.rank <= seen.cut:
        return True, f"{place}; {best}.", ""
    rank_missing = f"rank {seen.cut} or better of {seen.n}"
    if seen.incumbent_id is None:
        return False, f"{place}; only {best}.", f"A {rank_missing}."
    bar = f"the lower bound {seen.incumbent_low:.3f} of the incumbent {seen.incumbent_id}"
    if seen.own_high <= seen.incumbent_low:
        why = f"{place}; only {best}, and its upper bound does not exceed {bar}."
        return False, why, f"A {rank_missing}, or an upper bound above {seen.incumbent_low:.3f}."
    used = f"{seen.overlap_admissions} of {parameters['overlap_limit']:g} admissions by overlap"
    if seen.overlap_admissions >= parameters["overlap_limit"]:
        why = f"{place}; only {best}; it overlaps {bar}, but {used} are used."
        return False, why, f"A {rank_missing}, or a better incumbent, after which overlaps are admitted again."
    return True, f"{place}; its upper bound exceeds {bar}, and only {used} were used.", ""


def _widened(seen: HalvingSeen, parameters: Mapping[str, float]) -> str:
    if not _is_disordered(seen.pairs, seen.disordered, parameters):
        return ""
    return (
        f" (more than usual, for quick ranks badly here: {seen.disordered} of {seen.pairs} clear pairs the other way)"
    )


RULE: Final = Rule("halving", VERSION, DEFAULTS, LIMITS, HalvingSeen, observe, decide_from)


def decide(history: History, request: Promotion, parameters: Mapping[str, float]) -> Decision:
    """Whether a candidate may enter a rung."""
    return RULE.decide(history, request, parameters)

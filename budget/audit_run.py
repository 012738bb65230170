"""The invariants of one run, event by event: recomputed with plain numbers, compared with what the book says."""

import json
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple, get_args

from kernelgate.budget.admission import GUARDED, rungs_below
from kernelgate.budget.audit_booking import STILL, says_estimate, wrong_after_release, wrong_booking, wrong_grant
from kernelgate.budget.audit_refusals import untrue
from kernelgate.budget.audit_rows import EventRow, Replayed, ResultRow, reason_of
from kernelgate.budget.history import Fold, Timing
from kernelgate.budget.model import (
    HOUSE,
    PASSING,
    Budget,
    Decision,
    Promotion,
    Purse,
    Rung,
    Spent,
    UnjudgedReason,
    Verdict,
)
from kernelgate.budget.purse import granted_text, joined_purse, open_text, spent_text
from kernelgate.budget.rules import Rules, replay, rule_of

_TOLERANCE_S: Final = 1e-6
"""Sums of nanosecond-rounded seconds may differ by so much over a run."""


class _Amounts(NamedTuple):
    """The amounts of an event: `Amount` as plain numbers."""

    calls: int
    override_calls: int
    gpu_s: float
    cpu_s: float
    work_s: float


_NOWHERE: Final = frozenset[str]()
_NAMES: Final = ("run_id", "candidate_id", "rung", "environment_id", "gpu_s", "cpu_s", "work_s", "overrun_s")
_AMOUNTS: Final = itemgetter(*map(EventRow._fields.index, _Amounts._fields))
_CALL: Final = itemgetter(*map(EventRow._fields.index, ("candidate_id", "rung", "environment_id")))
_SHARED_OF_EVENT: Final = itemgetter(*map(EventRow._fields.index, _NAMES))
_SHARED_OF_RESULT: Final = itemgetter(*map(ResultRow._fields.index, _NAMES))
_BELOW: Final = {rung.value: tuple(step.value for step in rungs_below(rung)) for rung in Rung}
_PASSING: Final = {rung.value: verdicts for rung, verdicts in PASSING.items()}
_CALLS_OF: Final = {rung.value: f"{rung.value}_calls" for rung in Rung}
_MOVED_BY: Final = {rung: (calls, "override_calls", "device_s", "work_s") for rung, calls in _CALLS_OF.items()}
_TIMED: Final = (Rung.quick.value, Rung.precise.value)
_UNJUDGED: Final = get_args(UnjudgedReason)
_RAISING: Final = frozenset(("grant", "hold", "override", "extend"))
"""Kinds that take from what is left; the grant is looked at too, for it may grant less than nothing."""
_LOWERING: Final = frozenset(("settle", "release"))
"""Kinds that give back: a settle that takes more than its hold is found as that."""


@dataclass(slots=True)
class _Hold:
    """A hold that has not ended."""

    rung: str
    call: tuple[str, str, str]
    """Candidate, rung and environment."""
    amounts: _Amounts
    extended: bool = False


class _End(NamedTuple):
    """The last settle or release, and the hold that it ended: what the house pays stands right behind it."""

    event: EventRow
    held: _Amounts


@dataclass
class _Trail:
    """What a rule could see in one environment."""

    fold: Fold = field(default_factory=Fold)
    overlap_seqs: list[int] = field(default_factory=list[int])


class RunAudit:
    """State of one run while its events go by. What has ended is forgotten: a long book must fit into memory."""

    def __init__(self, run: Mapping[str, Any], rules: Rules) -> None:
        self._run = run
        self._rules = rules
        self._account_id = run["account_id"]
        self._parameters = json.loads(run["parameters_json"])
        self._budget = Budget.model_validate_json(run["budget_json"])
        self._granted: dict[str, float] = {
            **{f"{rung.value}_calls": self._budget.calls(rung) for rung in Rung},
            "override_calls": self._budget.overrides,
            "device_s": self._budget.device_s,
            "work_s": self._budget.deadline_s,
        }
        self._most = {
            name: limit + (_TOLERANCE_S if name.endswith("_s") else 0) for name, limit in self._granted.items()
        }
        self._granted_text = granted_text(self._budget)
        self._open: dict[str, float] = Spent().model_dump()
        self._settled: dict[str, float] = Spent().model_dump()
        self._settled_text = spent_text(self._settled)
        self._text = joined_purse(self._granted_text, spent_text(self._open), self._settled_text)
        self._holds: dict[int, _Hold] = {}
        self._ended = array("q")
        """Holds that have ended, eight bytes each; looked into only where something is wrong."""
        self._last_end: _End | None = None
        self._unbooked: dict[int, int] = {}
        """Hold → its end with more than it paid for, until the overrun comes."""
        self._passed: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        """Rung → candidate → environments in which the latest verdict passed."""
        self._places: dict[frozenset[str], frozenset[str]] = {}
        """Each set of environments once: nearly all candidates have the same."""
        self._trails: dict[str, _Trail] = defaultdict(_Trail)
        self._granted_seen = False
        self._closed = False

    def apply(self, event: EventRow, result: ResultRow | None, replayed: Replayed | None) -> list[str]:
        """Go on by one event; a sentence for each thing that is wrong.

        Args:
            event: its columns.
            result: the result row that names this event, if there is one.
            replayed: the result that it repeats, if it repeats one.
        """
        wrong: list[str] = []
        for step in (self._move, self._purse) if result is None else (self._move, self._result, self._purse):
            try:
                step(event, result, replayed, wrong)
            except Exception as error:  # noqa: BLE001 -- whatever stands in a cell is a finding, not the audit's end
                wrong.append(f"Event {event.seq} says what cannot be judged: {reason_of(error)}.")
        return wrong

    def _move(self, event: EventRow, result: ResultRow | None, _replayed: Replayed | None, wrong: list[str]) -> None:
        kind = event.kind
        if event.account_id != self._account_id or kind in STILL:
            wrong.extend(wrong_booking(event, self._account_id))
        if kind == "grant":
            self._granted_seen = True
            wrong.extend(wrong_grant(event, self._run, self._budget))
        elif not self._granted_seen:
            wrong.append(f"Event {event.seq} comes before the run's grant.")
        if kind in ("hold", "override"):
            self._entry(event, wrong)
        elif kind in ("extend", "settle", "release"):
            self._of_hold(event, result, wrong)
        elif kind == "overrun":
            self._overrun(event, wrong)
        elif kind == "refuse":
            self._decision(event, wrong)
            self._refusal(event, wrong)
        elif kind == "close":
            self._closed = True

    def _refusal(self, event: EventRow, wrong: list[str]) -> None:
        kind = event.refusal_kind
        if kind == "rule" and event.decision_json is None and event.rung not in GUARDED:
            wrong.append(f"Event {event.seq} needs a decision of the rule and has none.")
        if kind not in ("rung_missing", "purse", "deadline"):
            return
        below = {step: self._passed[step].get(event.candidate_id, _NOWHERE) for step in _BELOW.get(event.rung, ())}
        said = untrue(
            event, self._purse_now(), is_closed=self._closed, below=below, environment_id=event.environment_id
        )
        wrong.extend([] if said is None else [said])

    def _entry(self, event: EventRow, wrong: list[str]) -> None:
        candidate_id, environment_id = event.candidate_id, event.environment_id
        if self._closed:
            wrong.append(f"Hold {event.seq} was admitted after the run was closed.")
        for step in _BELOW[event.rung]:
            passed = self._passed[step].get(candidate_id, ())
            if not (passed if step == Rung.compile else environment_id in passed):
                wrong.append(f"{candidate_id} entered {event.rung} at event {event.seq} without having passed {step}.")
        self._decision(event, wrong)
        amounts = _amounts(event)
        self._holds[event.seq] = _Hold(event.rung, _CALL(event), amounts)
        self._add(self._open, event.rung, amounts, 1)

    def _of_hold(self, event: EventRow, result: ResultRow | None, wrong: list[str]) -> None:
        kind, seq, hold_seq = event.kind, event.seq, event.hold_seq
        hold = self._holds.get(hold_seq)
        if hold is None and hold_seq not in self._ended:
            wrong.append(f"The {kind} {seq} names hold {hold_seq}, which this run does not have.")
            return
        if hold is None or (kind == "extend" and hold.extended):
            wrong.append(f"Hold {hold_seq} was ended or extended before; event {seq} is a second {kind}.")
            return
        if hold.call != _CALL(event):
            wrong.append(f"The {kind} {seq} is of another call than hold {hold_seq}.")
        amounts = _amounts(event)
        if kind == "extend":
            hold.extended = True
            self._add(self._open, hold.rung, amounts, 1)
            hold.amounts = _raised(hold.amounts, amounts)
            return
        del self._holds[hold_seq]
        self._ended.append(hold_seq)
        self._last_end = _End(event, hold.amounts)
        self._add(self._open, hold.rung, hold.amounts, -1)
        if kind == "release":
            self._release(event, amounts, hold, wrong)
            return
        self._add(self._settled, hold.rung, amounts, 1)
        if event.overrun_s > 0:
            self._unbooked[hold_seq] = seq
        if result is None and event.reason not in _UNJUDGED:
            wrong.append(f"The settle {seq} has no result.")
        if result is not None and event.reason != result.verdict:
            wrong.append(f"The settle {seq} says {event.reason}, and its result {result.verdict}.")
        _charge_is_fair(event, amounts, hold.amounts, wrong)

    def _release(self, event: EventRow, amounts: _Amounts, hold: _Hold, wrong: list[str]) -> None:
        self._forget_overlap(event)
        if says_estimate(event):
            self._unbooked[event.hold_seq] = event.seq
        if amounts != hold.amounts:
            wrong.append(f"The release {event.seq} does not return what hold {event.hold_seq} held.")

    def _overrun(self, event: EventRow, wrong: list[str]) -> None:
        """What the house pays stands right behind the end of a hold; behind a settle it is what the hold lacked."""
        seq, end = event.seq, self._last_end
        if end is None or end.event.hold_seq != event.hold_seq or end.event.seq != seq - 1:
            wrong.append(f"The overrun {seq} does not follow the end of a hold.")
            return
        self._unbooked.pop(event.hold_seq, None)
        if event.account_id != HOUSE:
            wrong.append(f"The overrun {seq} is booked on {event.account_id}, not on the house.")
        settle = end.event
        if _CALL(event) != _CALL(settle):
            wrong.append(f"The overrun {seq} is of another call than hold {event.hold_seq}.")
        if _differ(event.gpu_s + event.cpu_s, event.overrun_s):
            wrong.append(f"The overrun {seq} says two amounts of device seconds.")
        if settle.kind == "release":
            wrong.extend(wrong_after_release(event, settle))
        if settle.kind == "settle" and _differ(event.gpu_s + event.cpu_s, settle.overrun_s):
            wrong.append(f"The overrun {seq} is not what settle {settle.seq} measured above its hold.")
        if settle.kind == "settle" and event.work_s > 0 and _differ(settle.work_s, end.held.work_s):
            wrong.append(f"The overrun {seq} lays work on the house that hold {event.hold_seq} could have paid.")

    def at_the_end(self) -> Iterator[tuple[int | None, str]]:
        """What only shows after the last event: what is missing, and the event that should have it behind it."""
        if not self._granted_seen:
            yield None, f"Run {self._run['run_id']} has no grant."
        for seq in self._unbooked.values():
            yield seq, f"What event {seq} says was used above its hold is not booked on the house."

    def _result(self, event: EventRow, result: ResultRow | None, replayed: Replayed | None, wrong: list[str]) -> None:
        if result is None:
            return
        seq, number = event.seq, result.result_id
        if event.kind not in ("settle", "note"):
            wrong.append(f"Result {number} names event {seq}, which is a {event.kind}.")
        if _SHARED_OF_RESULT(result) != _SHARED_OF_EVENT(event):
            wrong.append(f"Result {number} differs from event {seq} in whose it is or what it cost.")
        if result.source_sha256 != result.candidate_sha256 or result.task_digest != self._run["task_digest"]:
            wrong.append(f"Result {number} is of another source or task than its candidate's.")
        if (result.replay_of is not None) != (event.kind == "note"):
            wrong.append(f"Result {number}: a measured result needs a settle, a replayed one a note.")
        if result.replay_of is not None and replayed != (
            result.source_sha256, result.task_digest, result.verdict, result.environment_id,
        ):  # fmt: skip
            wrong.append(f"Result {number} says something else than result {result.replay_of}, which it repeats.")
        passed = self._passed[event.rung]
        before = passed.get(event.candidate_id, _NOWHERE)
        if (event.environment_id in before) != (result.verdict in _PASSING[event.rung]):
            after = before ^ {event.environment_id}
            passed[event.candidate_id] = self._places.setdefault(after, after)
        if event.rung in _TIMED:
            self._trails[event.environment_id].fold.add(Timing(
                Rung(result.rung), result.candidate_id, Verdict(result.verdict), result.ratio,
                result.ratio_low, result.ratio_high, result.gpu_s + result.cpu_s, seq,
            ))  # fmt: skip

    def _decision(self, event: EventRow, wrong: list[str]) -> None:
        """A stored decision must come out again: from what it saw, and what it saw from the book before it."""
        seq, text = event.seq, event.decision_json
        if text is None:
            if event.rung in GUARDED and (event.kind != "refuse" or event.refusal_kind == "rule"):
                wrong.append(f"Event {seq} needs a decision of the rule and has none.")
            return
        decision = Decision.model_validate_json(text)
        if decision.admit != (event.kind != "refuse") or decision.overridden != (event.kind == "override"):
            wrong.append(f"The decision of event {seq} does not say what was done.")
        given = (decision.rule, decision.rule_version, decision.parameters)
        if given != (self._run["rule"], self._run["rule_version"], self._parameters):
            wrong.append(f"The decision of event {seq} is of another rule or other parameters than the run's.")
            return
        try:
            again = replay(decision, self._rules)
        except (LookupError, ValueError) as error:
            wrong.append(f"The decision of event {seq} cannot be replayed: {error}.")
            return
        if again != decision:
            wrong.append(f"The decision of event {seq} does not replay to itself.")
        if decision.saw != self._saw(event, decision):
            wrong.append(f"What the decision of event {seq} says it saw is not what the book said then.")
        if event.kind == "hold" and decision.saw.get("rank", 0) > decision.saw.get("cut", 0):  # type: ignore[operator]  # JSON numbers
            self._trails[event.environment_id].overlap_seqs.append(seq)

    def _saw(self, event: EventRow, decision: Decision) -> dict[str, Any]:
        trail = self._trails[event.environment_id]
        history = trail.fold.history(trail.overlap_seqs, self._purse_now(), event.seq - 1)
        reason = "asked" if decision.saw.get("override_asked") else None
        promotion = Promotion(candidate_id=event.candidate_id, rung=Rung(event.rung), override_reason=reason)
        rule = rule_of(decision.rule, decision.rule_version, self._rules)
        saw: dict[str, Any] = rule.observe(history, promotion, decision.parameters).model_dump(mode="json")
        return saw

    def _purse_now(self) -> Purse:
        return Purse(
            granted=self._budget,
            open=Spent.model_validate(self._open),
            settled=Spent.model_validate(self._settled),
        )

    def _forget_overlap(self, event: EventRow) -> None:
        overlaps = self._trails[event.environment_id].overlap_seqs
        if event.hold_seq in overlaps:
            overlaps.remove(event.hold_seq)

    def _purse(self, event: EventRow, _result: ResultRow | None, _replayed: Replayed | None, wrong: list[str]) -> None:
        if event.purse_json is None:
            wrong.append(f"Event {event.seq} carries no purse.")
            return
        kind = event.kind
        if kind in _RAISING:
            self._text = joined_purse(self._granted_text, open_text(self._open), self._settled_text)
            opened, settled, most = self._open, self._settled, self._most
            wrong += [
                f"After event {event.seq} more {name} are open and settled than were granted."
                for name in _MOVED_BY.get(event.rung, most)  # the others have not moved since they were looked at
                if opened[name] + settled[name] > most[name]
            ]
        elif kind in _LOWERING:
            if kind == "settle":
                self._settled_text = spent_text(self._settled)
            self._text = joined_purse(self._granted_text, open_text(self._open), self._settled_text)
        if event.purse_json != self._text and json.loads(event.purse_json) != json.loads(self._text):
            wrong.append(f"The purse after event {event.seq} is not what the events before it add up to.")

    @staticmethod
    def _add(total: dict[str, float], rung: str, amounts: _Amounts, sign: int) -> None:
        """The arithmetic of `Spent.plus` on plain numbers: an audit of a million events has no time for models."""
        calls, override_calls, gpu_s, cpu_s, more_work_s = amounts
        total[_CALLS_OF[rung]] += sign * calls
        total["override_calls"] += sign * override_calls
        device_s = round(total["device_s"] + sign * (gpu_s + cpu_s), 9)
        work_s = round(total["work_s"] + sign * more_work_s, 9)
        total["device_s"] = device_s if device_s > 0 else 0.0
        total["work_s"] = work_s if work_s > 0 else 0.0


def _amounts(event: EventRow) -> _Amounts:
    return _Amounts._make(_AMOUNTS(event))


def _raised(held: _Amounts, more: _Amounts) -> _Amounts:
    return held._replace(
        gpu_s=round(held.gpu_s + more.gpu_s, 9),
        cpu_s=round(held.cpu_s + more.cpu_s, 9),
        work_s=round(held.work_s + more.work_s, 9),
    )


def _charge_is_fair(event: EventRow, charged: _Amounts, held: _Amounts, wrong: list[str]) -> None:
    if (
        charged.calls > held.calls or charged.override_calls > held.override_calls
        or charged.gpu_s > held.gpu_s + 1e-9 or charged.cpu_s > held.cpu_s + 1e-9 or charged.work_s > held.work_s + 1e-9
    ):  # fmt: skip
        wrong.append(f"The settle {event.seq} charges more than hold {event.hold_seq} held.")
    if charged.calls != held.calls or charged.override_calls != held.override_calls:
        wrong.append(f"The settle {event.seq} charges other calls than hold {event.hold_seq} held.")
    if event.overrun_s > 0 and _differ(charged.gpu_s + charged.cpu_s, held.gpu_s + held.cpu_s):
        wrong.append(f"The settle {event.seq} lays on the house what hold {event.hold_seq} could have paid.")


def _differ(one_s: float, other_s: float) -> bool:
    """Whether two amounts that are kept to the nanosecond are not the same."""
    return round(one_s - other_s, 9) != 0

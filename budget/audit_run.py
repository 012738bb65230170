"""The invariants of one run, event by event: recomputed with plain numbers, compared with what the book says."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from kernelgate.budget.admission import GUARDED, rungs_below
from kernelgate.budget.history import Timing, fold_history
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
from kernelgate.budget.rules import Rules, replay

_TOLERANCE_S: Final = 1e-6
"""Sums of nanosecond-rounded seconds may differ by so much over a run."""
_AMOUNTS: Final = ("calls", "override_calls", "gpu_s", "cpu_s", "work_s")


@dataclass(frozen=True, slots=True)
class _End:
    """The settle or release of a hold."""

    kind: str
    seq: int
    work_s: float
    overrun_s: float


@dataclass
class _Hold:
    rung: str
    candidate_id: str
    environment_id: str
    amounts: dict[str, float]
    extended: bool = False
    end: _End | None = None
    overrun_booked: bool = False


@dataclass
class _Trail:
    """What a rule could see in one environment."""

    timings: list[Timing] = field(default_factory=list[Timing])
    overlap_seqs: list[int] = field(default_factory=list[int])


class RunAudit:
    """State of one run while its events go by."""

    def __init__(self, run: Mapping[str, Any], rules: Rules) -> None:
        self._run = run
        self._rules = rules
        self._parameters = json.loads(run["parameters_json"])
        self._budget = Budget.model_validate_json(run["budget_json"])
        self._granted: dict[str, float] = {
            **{f"{rung.value}_calls": self._budget.calls(rung) for rung in Rung},
            "override_calls": self._budget.overrides,
            "device_s": self._budget.device_s,
            "work_s": self._budget.deadline_s,
        }
        self._granted_json = self._budget.model_dump(mode="json")
        self._open: dict[str, float] = Spent().model_dump()
        self._settled: dict[str, float] = Spent().model_dump()
        self._holds: dict[int, _Hold] = {}
        self._verdicts: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        """(candidate, rung) → environment → latest verdict."""
        self._trails: dict[str, _Trail] = defaultdict(_Trail)
        self._granted_seen = False
        self._closed = False

    def apply(self, event: dict[str, Any], result: Mapping[str, Any] | None, digest: str | None) -> Iterator[str]:
        """Go on by one event; yields a sentence for each thing that is wrong.

        Args:
            event: its columns.
            result: the result row that names this event, if there is one.
            digest: of that result's rows as they stand in the file.
        """
        kind = event["kind"]
        if kind == "grant":
            self._granted_seen = True
        elif not self._granted_seen:
            yield f"Event {event['seq']} comes before the run's grant."
        if kind in ("hold", "override"):
            yield from self._entry(event)
        elif kind in ("extend", "settle", "release"):
            yield from self._of_hold(event, result)
        elif kind == "overrun":
            yield from self._overrun(event)
        elif kind == "refuse":
            yield from self._decision(event)
        elif kind == "close":
            self._closed = True
        yield from self._rows(event, result, digest)
        yield from self._purse(event)

    def _entry(self, event: dict[str, Any]) -> Iterator[str]:
        seq, candidate_id, environment_id = event["seq"], event["candidate_id"], event["environment_id"]
        if self._closed:
            yield f"Hold {seq} was admitted after the run was closed."
        for step in rungs_below(Rung(event["rung"])):
            found = self._verdicts[candidate_id, step.value]
            verdicts = set(found.values()) if step is Rung.compile else {found.get(environment_id, "none")}
            if not verdicts & PASSING[step]:
                yield f"{candidate_id} entered {event['rung']} at event {seq} without having passed {step}."
        yield from self._decision(event)
        amounts = {name: event[name] for name in _AMOUNTS}
        self._holds[seq] = _Hold(event["rung"], candidate_id, environment_id, amounts)
        self._add(self._open, event["rung"], amounts, 1)

    def _of_hold(self, event: dict[str, Any], result: Mapping[str, Any] | None) -> Iterator[str]:
        kind, seq = event["kind"], event["seq"]
        hold = self._holds.get(event["hold_seq"])
        if hold is None:
            yield f"The {kind} {seq} names hold {event['hold_seq']}, which this run does not have."
            return
        if (hold.rung, hold.candidate_id, hold.environment_id) != (
            event["rung"], event["candidate_id"], event["environment_id"],
        ):  # fmt: skip
            yield f"The {kind} {seq} is of another call than hold {event['hold_seq']}."
        if hold.end is not None or (kind == "extend" and hold.extended):
            yield f"Hold {event['hold_seq']} was ended or extended before; event {seq} is a second {kind}."
            return
        amounts = {name: event[name] for name in _AMOUNTS}
        if kind == "extend":
            hold.extended = True
            self._add(self._open, hold.rung, amounts, 1)
            hold.amounts = {name: round(hold.amounts[name] + amounts[name], 9) for name in _AMOUNTS}
            return
        hold.end = _End(kind, seq, event["work_s"], event["overrun_s"])
        self._add(self._open, hold.rung, hold.amounts, -1)
        if kind == "release":
            self._forget_overlap(event)
            if amounts != hold.amounts:
                yield f"The release {seq} does not return what hold {event['hold_seq']} held."
            return
        self._add(self._settled, hold.rung, amounts, 1)
        if result is None and event["reason"] not in get_args(UnjudgedReason):
            yield f"The settle {seq} has no result."
        if result is not None and event["reason"] != result["verdict"]:
            yield f"The settle {seq} says {event['reason']}, and its result {result['verdict']}."
        yield from _charge_is_fair(event, hold)

    def _overrun(self, event: dict[str, Any]) -> Iterator[str]:
        """What the house pays stands right behind the end of a hold; behind a settle it is what the hold lacked."""
        seq, hold = event["seq"], self._holds.get(event["hold_seq"])
        end = None if hold is None else hold.end
        if hold is None or end is None or end.seq != seq - 1:
            yield f"The overrun {seq} does not follow the end of a hold."
            return
        hold.overrun_booked = True
        if event["account_id"] != HOUSE:
            yield f"The overrun {seq} is booked on {event['account_id']}, not on the house."
        if end.kind == "settle" and _differ(event["gpu_s"] + event["cpu_s"], end.overrun_s):
            yield f"The overrun {seq} is not what settle {end.seq} measured above its hold."
        if end.kind == "settle" and event["work_s"] > 0 and _differ(end.work_s, hold.amounts["work_s"]):
            yield f"The overrun {seq} lays work on the house that hold {event['hold_seq']} could have paid."

    def at_the_end(self) -> Iterator[tuple[int | None, str]]:
        """What only shows after the last event: what is missing, and the event that should have it behind it."""
        if not self._granted_seen:
            yield None, f"Run {self._run['run_id']} has no grant."
        for hold in self._holds.values():
            end = hold.end
            if end is not None and end.kind == "settle" and end.overrun_s > 0 and not hold.overrun_booked:
                yield end.seq, f"What settle {end.seq} measured above its hold is not booked on the house."

    def _rows(self, event: dict[str, Any], result: Mapping[str, Any] | None, digest: str | None) -> Iterator[str]:
        seq = event["seq"]
        if digest != event["rows_sha256"]:
            yield f"The rows that event {seq} stands for do not have the digest that it carries."
        if result is None:
            return
        if event["kind"] not in ("settle", "note"):
            yield f"Result {result['result_id']} names event {seq}, which is a {event['kind']}."
        names = ("run_id", "candidate_id", "rung", "environment_id", "gpu_s", "cpu_s", "work_s", "overrun_s")
        if any(result[name] != event[name] for name in names):
            yield f"Result {result['result_id']} differs from event {seq} in whose it is or what it cost."
        if result["source_sha256"] != result["candidate_sha256"] or result["task_digest"] != self._run["task_digest"]:
            yield f"Result {result['result_id']} is of another source or task than its candidate's."
        yield from _replay_is_faithful(event, result)
        self._verdicts[event["candidate_id"], event["rung"]][event["environment_id"]] = result["verdict"]
        if event["rung"] in (Rung.quick, Rung.precise):
            self._trails[event["environment_id"]].timings.append(Timing(
                Rung(result["rung"]), result["candidate_id"], Verdict(result["verdict"]), result["ratio"],
                result["ratio_low"], result["ratio_high"], result["gpu_s"] + result["cpu_s"], seq,
            ))  # fmt: skip

    def _decision(self, event: dict[str, Any]) -> Iterator[str]:
        """A stored decision must come out again: from what it saw, and what it saw from the book before it."""
        seq, text = event["seq"], event["decision_json"]
        if text is None:
            if event["rung"] in GUARDED and (event["kind"] != "refuse" or event["refusal_kind"] == "rule"):
                yield f"Event {seq} needs a decision of the rule and has none."
            return
        decision = Decision.model_validate_json(text)
        if decision.admit != (event["kind"] != "refuse") or decision.overridden != (event["kind"] == "override"):
            yield f"The decision of event {seq} does not say what was done."
        if decision.rule != self._run["rule"] or decision.parameters != self._parameters:
            yield f"The decision of event {seq} is of another rule or other parameters than the run's."
            return
        try:
            again = replay(decision, self._rules)
        except (LookupError, ValueError) as error:
            yield f"The decision of event {seq} cannot be replayed: {error}."
            return
        if again != decision:
            yield f"The decision of event {seq} does not replay to itself."
        if decision.saw != self._saw(event, decision):
            yield f"What the decision of event {seq} says it saw is not what the book said then."
        if event["kind"] == "hold" and decision.saw.get("rank", 0) > decision.saw.get("cut", 0):  # type: ignore[operator]  # JSON numbers
            self._trails[event["environment_id"]].overlap_seqs.append(seq)

    def _saw(self, event: dict[str, Any], decision: Decision) -> dict[str, Any]:
        purse = Purse(
            granted=self._budget,
            open=Spent.model_validate(self._open),
            settled=Spent.model_validate(self._settled),
        )
        trail = self._trails[event["environment_id"]]
        history = fold_history(trail.timings, trail.overlap_seqs, purse, event["seq"] - 1)
        reason = "asked" if decision.saw.get("override_asked") else None
        promotion = Promotion(candidate_id=event["candidate_id"], rung=Rung(event["rung"]), override_reason=reason)
        rule = self._rules[decision.rule]
        saw: dict[str, Any] = rule.observe(history, promotion, decision.parameters).model_dump(mode="json")
        return saw

    def _forget_overlap(self, event: dict[str, Any]) -> None:
        overlaps = self._trails[event["environment_id"]].overlap_seqs
        if event["hold_seq"] in overlaps:
            overlaps.remove(event["hold_seq"])

    def _purse(self, event: dict[str, Any]) -> Iterator[str]:
        if event["purse_json"] is None:
            yield f"Event {event['seq']} carries no purse."
            return
        purse = json.loads(event["purse_json"])
        expected = {"granted": self._granted_json, "open": self._open, "settled": self._settled}
        if purse != expected:
            yield f"The purse after event {event['seq']} is not what the events before it add up to."
        for name, limit in self._granted.items():
            if self._open[name] + self._settled[name] > limit + (_TOLERANCE_S if name.endswith("_s") else 0):
                yield f"After event {event['seq']} more {name} are open and settled than were granted."

    @staticmethod
    def _add(total: dict[str, float], rung: str, amounts: Mapping[str, float], sign: int) -> None:
        """The arithmetic of `Spent.plus` on plain numbers: an audit of a million events has no time for models."""
        total[f"{rung}_calls"] += sign * amounts["calls"]
        total["override_calls"] += sign * amounts["override_calls"]
        total["device_s"] = max(0.0, round(total["device_s"] + sign * (amounts["gpu_s"] + amounts["cpu_s"]), 9))
        total["work_s"] = max(0.0, round(total["work_s"] + sign * amounts["work_s"], 9))


def _charge_is_fair(event: dict[str, Any], hold: _Hold) -> Iterator[str]:
    if any(event[name] > hold.amounts[name] + 1e-9 for name in _AMOUNTS):
        yield f"The settle {event['seq']} charges more than hold {event['hold_seq']} held."
    if event["calls"] != hold.amounts["calls"] or event["override_calls"] != hold.amounts["override_calls"]:
        yield f"The settle {event['seq']} charges other calls than hold {event['hold_seq']} held."
    device_s, held_s = (amounts["gpu_s"] + amounts["cpu_s"] for amounts in (event, hold.amounts))
    if event["overrun_s"] > 0 and _differ(device_s, held_s):
        yield f"The settle {event['seq']} lays on the house what hold {event['hold_seq']} could have paid."


def _differ(one_s: float, other_s: float) -> bool:
    """Whether two amounts that are kept to the nanosecond are not the same."""
    return round(one_s - other_s, 9) != 0


def _replay_is_faithful(event: dict[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    if (result["replay_of"] is not None) != (event["kind"] == "note"):
        yield f"Result {result['result_id']}: a measured result needs a settle, a replayed one a note."
    if result["replay_of"] is None:
        return
    replayed = tuple(result[f"replayed_{name}"] for name in ("sha256", "task", "verdict", "environment"))
    if replayed != (result["source_sha256"], result["task_digest"], result["verdict"], result["environment_id"]):
        yield f"Result {result['result_id']} says something else than result {result['replay_of']}, which it repeats."

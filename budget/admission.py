"""The door of a rung: is the run open, were the rungs below passed, is there purse, what does the rule say."""

import json
import sqlite3
from dataclasses import dataclass, replace
from typing import Any, Final

from kernelgate.budget.chain import Event, append
from kernelgate.budget.model import ALL_ACCOUNTS, PASSING, RUNG_BELOW, Decision, Promotion, Purse, RefusalKind, Rung
from kernelgate.budget.outcomes import AdmitRequest, Admitted, Refused
from kernelgate.budget.purse import purse_text, shortage, trimmed
from kernelgate.budget.reads import unknown_run
from kernelgate.budget.rules import rule_of
from kernelgate.budget.runs import Runs
from kernelgate.tasks.model import canonical_json

GUARDED: Final = frozenset({Rung.precise})
"""Rungs at whose door a rule is asked."""


_DOOR: Final = f"""
SELECT r.account_id, r.rule, r.rule_version, r.parameters_json,
  (SELECT purse_json FROM events e WHERE e.run_id = r.run_id ORDER BY seq DESC LIMIT 1),
  (SELECT reason FROM events e WHERE e.run_id = r.run_id AND e.kind = 'close'),
  EXISTS (SELECT 1 FROM candidates c WHERE c.candidate_id = ? AND c.run_id = r.run_id),
  (SELECT min(device_s_cap) FROM accounts a WHERE a.account_id IN (?, '{ALL_ACCOUNTS}'))
FROM runs r WHERE r.run_id = ?"""

_TAKEN: Final = """
SELECT ifnull(sum(CASE account_id WHEN ? THEN device_s ELSE 0.0 END), 0.0), ifnull(sum(device_s), 0.0)
FROM (SELECT account_id, open_device_s + settled_device_s AS device_s FROM balance)"""
"""What all runs of an account have taken of a device, and those of all accounts: one walk, while others wait."""


@dataclass(frozen=True, slots=True)
class _Door:
    """What stands in the book about a call that asks to be admitted."""

    rule: str
    rule_version: int
    parameters_json: str
    purse: Purse
    closed: str | None
    account_s_left: float | None


class Admission(Runs):
    """Entry to a rung: a hold, or a refusal; either is a row."""

    def admit(self, request: AdmitRequest) -> Admitted | Refused:
        """Ask for entry to a rung: hold the amount, or refuse.

        In this order: is the run open, have the rungs below passed on this source and environment, is there
        purse and time, what does the run's rule say. A written reason buys off the rule's refusal from the
        exploration purse.

        The answer is on the disk once a head is asked for, as each reply does: a hold that a power cut takes away is
        one that the sweep would have released.

        Raises:
            UnknownId: no such run or candidate on this account.
            RuleNotHere: the run began under a version of its rule that only another kernelgate has; nothing is held.
            LedgerError: the book is busy or cannot be written; nothing is held.
        """
        with self.transaction(durable=False) as connection:
            door = self._door(request)
            obstacle = self._obstacle(door, request)
            if obstacle is not None:
                return self._turn_away(request, door.purse, *obstacle)
            decision = self._decide(door, request)
            if decision is not None and not decision.admit:
                return self._turn_away(request, door.purse, "rule", decision.why, decision.missing, decision)
            return self._hold_amount(connection, request, door, decision)

    def refuse(
        self,
        *,
        run_id: str,
        account: str,
        kind: RefusalKind,
        why: str,
        missing: str = "",
        candidate_id: str | None = None,
        rung: Rung | None = None,
        environment_id: str | None = None,
        job_id: str | None = None,
    ) -> Refused:
        """Record a refusal that was decided outside of the book: `not_here`, `task_unqualified`."""
        with self.transaction():
            self.run(run_id, account)
            if candidate_id is not None:
                self._check_candidate(candidate_id, run_id)
            event = Event(
                kind="refuse", account_id=account, run_id=run_id, candidate_id=candidate_id, job_id=job_id,
                rung=None if rung is None else rung.value, environment_id=environment_id, refusal_kind=kind,
                reason=why, missing=missing,
            )  # fmt: skip
            return self._write_refusal(event, self.purse(run_id), kind)

    def rung_missing(
        self, candidate_id: str, rung: Rung, environment_id: str, environment_of_compile: str | None = None
    ) -> tuple[str, str] | None:
        """Why a rung is shut (why, what is missing), or None: each rung below must have passed at its last attempt."""
        for step in rungs_below(rung):
            where = environment_of_compile if step is Rung.compile else environment_id
            row = self._row(
                """SELECT verdict FROM results WHERE candidate_id = ? AND rung = ?
                AND environment_id = ifnull(?, environment_id) ORDER BY event_seq DESC LIMIT 1""",
                candidate_id,
                step.value,
                where,
            )
            if row is None:
                why = f"{candidate_id} has not been through {step} in this environment, which {rung} needs."
                return why, f"{step.value}: a passing result."
            if row["verdict"] not in PASSING[step]:
                why = f"{candidate_id} did not pass {step}: its verdict is {row['verdict']}."
                return why, f"{step.value}: a passing result; change the source and start at compile."
        return None

    def _check_candidate(self, candidate_id: str, run_id: str) -> None:
        """Raise UnknownId unless the candidate is in the run; its files are not read."""
        if self._row("SELECT 1 FROM candidates WHERE candidate_id = ? AND run_id = ?", candidate_id, run_id) is None:
            self.candidate(candidate_id, run_id=run_id)

    def _door(self, request: AdmitRequest) -> _Door:
        """All that an admission reads but for the rungs below and the history: in one statement, for others wait."""
        row = self._tuple(_DOOR, request.candidate_id, request.account, request.run_id)
        if row is None or row[0] != request.account:
            raise unknown_run(request.run_id)
        _, rule, rule_version, parameters_json, purse, closed, is_known, cap_s = row
        if not is_known:
            self.candidate(request.candidate_id, run_id=request.run_id)
        return _Door(
            rule=rule,
            rule_version=rule_version,
            parameters_json=parameters_json,
            purse=Purse.model_validate_json(purse),
            closed=closed,
            account_s_left=None if cap_s is None else self._account_s_left(request.account),
        )

    def _obstacle(self, door: _Door, request: AdmitRequest) -> tuple[RefusalKind, str, str] | None:
        if door.closed is not None:
            return "deadline", f"Run {request.run_id} is closed ({door.closed}).", "A new run: `start_run`."
        shut = self.rung_missing(
            request.candidate_id, request.rung, request.environment_id, request.environment_of_below
        )
        if shut is not None:
            return ("rung_missing", *shut)
        return shortage(door.purse, door.account_s_left, request.rung, request.hold, request.least)

    def spendable(self, run_id: str) -> Purse:
        """A run's purse, its grant cut to what the caps of its account and of all accounts leave of device seconds.

        Raises UnknownId.
        """
        purse = self.purse(run_id)
        [row] = self.query("SELECT account_id FROM runs WHERE run_id = ?", run_id)
        left_s = self._account_s_left(row["account_id"])
        if left_s is None or left_s >= purse.device_s_left:
            return purse
        within_s = purse.open.device_s + purse.settled.device_s + left_s
        return purse.model_copy(update={"granted": purse.granted.model_copy(update={"device_s": within_s})})

    def _account_s_left(self, account: str) -> float | None:
        """Device seconds left under the cap of an account and that of all together; None where neither is capped."""
        caps = self.query(
            "SELECT account_id, device_s_cap FROM accounts WHERE account_id IN (?, ?) AND device_s_cap NOT NULL",
            account,
            ALL_ACCOUNTS,
        )
        if not caps:
            return None
        own_s, all_s = self._tuple(_TAKEN, account) or (0.0, 0.0)
        taken_s = {account: own_s, ALL_ACCOUNTS: all_s}
        return max(0.0, min(float(row["device_s_cap"] - taken_s[row["account_id"]]) for row in caps))

    def _decide(self, door: _Door, request: AdmitRequest) -> Decision | None:
        if request.rung not in GUARDED:
            return None
        promotion = Promotion(
            candidate_id=request.candidate_id, rung=request.rung, override_reason=request.override_reason
        )
        history = self.history(request.run_id, request.environment_id)
        rule = rule_of(door.rule, door.rule_version, self.rules)
        return rule.decide(history, promotion, json.loads(door.parameters_json))

    def _hold_amount(
        self, connection: sqlite3.Connection, request: AdmitRequest, door: _Door, decision: Decision | None
    ) -> Admitted:
        overridden = decision is not None and decision.overridden
        hold = trimmed(door.purse, door.account_s_left, request.hold, overridden=overridden)
        after = door.purse.holding(request.rung, hold)
        event = Event(**_call_of(request), kind="override" if overridden else "hold", **hold.model_dump(),
                      purse_json=purse_text(after), decision_json=_decision_text(decision),
                      reason=request.override_reason or "")  # fmt: skip
        head = append(connection, self._clock, event)
        return Admitted(hold_seq=head.seq, hold=hold, decision=decision, purse=after, head=head)

    def _turn_away(
        self, request: AdmitRequest, purse: Purse, kind: RefusalKind, why: str, missing: str,
        decision: Decision | None = None,
    ) -> Refused:  # fmt: skip
        call = _call_of(request)
        if kind == "rung_missing" and missing.startswith(f"{Rung.compile.value}:"):
            # Where the result is missing: a candidate is compiled for a target, and checked on a device.
            call["environment_id"] = request.environment_of_below or request.environment_id
        event = Event(**call, kind="refuse", refusal_kind=kind, reason=why, missing=missing,
                      decision_json=_decision_text(decision))  # fmt: skip
        return self._write_refusal(event, purse, kind, decision)

    def _write_refusal(
        self, event: Event, purse: Purse, kind: RefusalKind, decision: Decision | None = None
    ) -> Refused:
        with self.transaction() as connection:
            head = append(connection, self._clock, replace(event, purse_json=purse_text(purse)))
        return Refused(
            seq=head.seq, kind=kind, why=event.reason, missing=event.missing, decision=decision, purse=purse, head=head
        )


def rungs_below(rung: Rung) -> tuple[Rung, ...]:
    """All rungs that a rung stands on, lowest first."""
    below: list[Rung] = []
    step = RUNG_BELOW[rung]
    while step is not None:
        below.insert(0, step)
        step = RUNG_BELOW[step]
    return tuple(below)


def _call_of(request: AdmitRequest) -> dict[str, Any]:
    return {
        "account_id": request.account,
        "run_id": request.run_id,
        "candidate_id": request.candidate_id,
        "job_id": request.job_id,
        "rung": request.rung.value,
        "environment_id": request.environment_id,
    }


def _decision_text(decision: Decision | None) -> str | None:
    return None if decision is None else canonical_json(decision.model_dump(mode="json"))

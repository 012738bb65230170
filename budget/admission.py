"""The door of a rung: is the run open, were the rungs below passed, is there purse, what does the rule say."""

from dataclasses import replace
from typing import Any, Final

from kernelgate.budget.chain import Event, append
from kernelgate.budget.model import PASSING, RUNG_BELOW, Decision, Promotion, Purse, RefusalKind, Rung
from kernelgate.budget.outcomes import AdmitRequest, Admitted, Refused
from kernelgate.budget.purse import shortage, trimmed
from kernelgate.budget.records import RunRecord
from kernelgate.budget.runs import Runs, purse_text
from kernelgate.tasks.model import canonical_json

GUARDED: Final = frozenset({Rung.precise})
"""Rungs at whose door a rule is asked."""


class Admission(Runs):
    """Entry to a rung: a hold, or a refusal; either is a row."""

    def admit(self, request: AdmitRequest) -> Admitted | Refused:
        """Ask for entry to a rung: hold the amount, or refuse.

        In this order: is the run open, have the rungs below passed on this source and environment, is there
        purse and time, what does the run's rule say. A written reason buys off the rule's refusal from the
        exploration purse.

        Raises:
            UnknownId: no such run or candidate on this account.
            LedgerError: the book is busy or cannot be written; nothing is held.
        """
        with self.transaction():
            run = self.run(request.run_id, request.account)
            self._check_candidate(request.candidate_id, request.run_id)
            purse = self.purse(request.run_id)
            account_s_left = self._account_s_left(request.account)
            obstacle = self._obstacle(run, request, purse, account_s_left)
            if obstacle is not None:
                return self._turn_away(request, purse, *obstacle)
            decision = self._decide(run, request)
            if decision is not None and not decision.admit:
                return self._turn_away(request, purse, "rule", decision.why, decision.missing, decision)
            return self._hold_amount(request, purse, account_s_left, decision)

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

    def _obstacle(
        self, run: RunRecord, request: AdmitRequest, purse: Purse, account_s_left: float | None
    ) -> tuple[RefusalKind, str, str] | None:
        if run.closed is not None:
            return "deadline", f"Run {run.run_id} is closed ({run.closed}).", "A new run: `start_run`."
        shut = self.rung_missing(
            request.candidate_id, request.rung, request.environment_id, request.environment_of_below
        )
        if shut is not None:
            return ("rung_missing", *shut)
        return shortage(purse, account_s_left, request.rung, request.hold, request.least)

    def _account_s_left(self, account: str) -> float | None:
        row = self._row("SELECT device_s_cap FROM accounts WHERE account_id = ?", account)
        if row is None or row["device_s_cap"] is None:
            return None
        total = "SELECT ifnull(sum(open_device_s + settled_device_s), 0.0) AS taken_s FROM balance WHERE account_id = ?"
        taken = self._row(total, account)
        return max(0.0, float(row["device_s_cap"]) - float(taken["taken_s"] if taken else 0.0))

    def _decide(self, run: RunRecord, request: AdmitRequest) -> Decision | None:
        if request.rung not in GUARDED:
            return None
        promotion = Promotion(
            candidate_id=request.candidate_id, rung=request.rung, override_reason=request.override_reason
        )
        history = self.history(run.run_id, request.environment_id)
        return self.rules[run.rule].decide(history, promotion, run.parameters)

    def _hold_amount(
        self, request: AdmitRequest, purse: Purse, account_s_left: float | None, decision: Decision | None
    ) -> Admitted:
        overridden = decision is not None and decision.overridden
        hold = trimmed(purse, account_s_left, request.hold, overridden=overridden)
        after = purse.model_copy(update={"open": purse.open.plus(request.rung, hold)})
        event = Event(**_call_of(request), kind="override" if overridden else "hold", **hold.model_dump(),
                      purse_json=purse_text(after), decision_json=_decision_text(decision),
                      reason=request.override_reason or "")  # fmt: skip
        with self.transaction() as connection:
            head = append(connection, self._clock, event)
        return Admitted(hold_seq=head.seq, hold=hold, decision=decision, purse=after, head=head)

    def _turn_away(
        self, request: AdmitRequest, purse: Purse, kind: RefusalKind, why: str, missing: str,
        decision: Decision | None = None,
    ) -> Refused:  # fmt: skip
        event = Event(**_call_of(request), kind="refuse", refusal_kind=kind, reason=why, missing=missing,
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

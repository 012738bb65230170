"""Starting and closing runs, registering candidates, and what the house knows: tasks, environments, calibrations."""

import json
from collections.abc import Mapping
from typing import Any, Final

from kernelgate.budget.chain import Event, append
from kernelgate.budget.clock import earlier
from kernelgate.budget.errors import IdempotencyConflict, LedgerError
from kernelgate.budget.model import HOUSE, Amount, Purse
from kernelgate.budget.purse import purse_text
from kernelgate.budget.reads import Reads, RunClosed
from kernelgate.budget.recorded import RecordedRows, said
from kernelgate.budget.records import (
    CalibrationRecord,
    CandidateRecord,
    Environment,
    Json,
    QualificationRecord,
    RunRecord,
    RunRequest,
)
from kernelgate.budget.rows import insert, insert_observation
from kernelgate.tasks.model import Candidate, Task, canonical_json

IDLE_LIMIT_S: Final = 24 * 3600.0
"""A run without an event for so long expires."""


class UnknownRule(LedgerError):
    """No such rule, or no such parameter of it."""


class Runs(Reads):
    """What stands at the beginning and the end of spending."""

    def start_run(self, task: Task, request: RunRequest) -> RunRecord:
        """Open a run: the task, account and environment are recorded, the budget is granted.

        The same idempotency key with the same arguments returns the run that it made.

        Raises:
            IdempotencyConflict: the key was used with other arguments.
            UnknownRule: the rule or one of its parameters does not exist.
            LedgerError: the book cannot be written.
        """
        rule = self.rules.get(request.rule)
        if rule is None:
            raise UnknownRule(f"unknown rule {request.rule!r}; the rules are: {', '.join(self.rules)}")
        try:
            parameters = rule.parameters(request.parameters)
        except ValueError as error:
            raise UnknownRule(str(error)) from error
        with self.transaction() as connection:
            earlier_run = self._run_of_key(request)
            if earlier_run is not None:
                return earlier_run
            self.record_account(request.account)
            self.record_task(task)
            environment_id = self.record_environment(request.environment)
            (number,) = connection.execute("SELECT ifnull(max(number), 0) + 1 FROM runs").fetchone()
            run_id = f"r{number}"
            insert(connection, "runs", {
                "number": number, "run_id": run_id, "account_id": request.account, "task_digest": task.digest,
                "task_name": task.name, "rule": rule.name, "rule_version": rule.version,
                "parameters_json": canonical_json(dict(parameters)),
                "budget_json": canonical_json(request.budget.model_dump(mode="json")),
                "device_kind": request.device_kind, "device_uid": request.device_uid,
                "environment_id": environment_id, "idempotency_key": request.idempotency_key,
                "arguments_sha256": request.arguments_sha256, "client_name": request.client_name,
                "client_version": request.client_version, "created_utc": self._clock.utc(),
                "monotonic_s": self._clock.monotonic_s(),
            })  # fmt: skip
            on_gpu = request.device_kind == "cuda"
            grant = Event(
                kind="grant",
                account_id=request.account,
                run_id=run_id,
                environment_id=environment_id,
                override_calls=request.budget.overrides,
                gpu_s=request.budget.device_s if on_gpu else 0.0,
                cpu_s=0.0 if on_gpu else request.budget.device_s,
                work_s=request.budget.deadline_s,
                purse_json=purse_text(Purse(granted=request.budget)),
                rows_sha256=RecordedRows(connection).digest("runs", run_id),
            )
            append(connection, self._clock, grant)
            return self.run(run_id)

    def _run_of_key(self, request: RunRequest) -> RunRecord | None:
        if request.idempotency_key is None:
            return None
        row = self._row(
            "SELECT run_id, arguments_sha256 FROM runs WHERE account_id = ? AND idempotency_key = ?",
            request.account,
            request.idempotency_key,
        )
        if row is None:
            return None
        if row["arguments_sha256"] != request.arguments_sha256:
            raise IdempotencyConflict(
                f"The idempotency key {request.idempotency_key!r} made run {row['run_id']} with other arguments;"
                " send those again, or use another key."
            )
        return self.run(row["run_id"])

    def knows_key(self, account: str, idempotency_key: str | None) -> bool:
        """Whether an account has a run that this key made."""
        where = "account_id = ? AND idempotency_key = ?"  # NULL equals nothing
        return self._row(f"SELECT 1 FROM runs WHERE {where}", account, idempotency_key) is not None

    def close_run(self, run_id: str, reason: str, account: str | None = None) -> RunRecord:
        """Close a run: nothing more is admitted; open holds may still end. Closing twice changes nothing."""
        with self.transaction() as connection:
            run = self.run(run_id, account)
            if run.closed is None:
                purse = purse_text(self.purse(run_id))
                close = Event(
                    kind="close", account_id=run.account_id, run_id=run_id, reason=reason or "closed", purse_json=purse
                )
                append(connection, self._clock, close)
            return self.run(run_id)

    def expire_runs(self, idle_s: float = IDLE_LIMIT_S) -> tuple[str, ...]:
        """Close the runs without an event for so long and without work in flight; returns their ids."""
        before = earlier(self._clock.utc(), idle_s)
        idle = """SELECT r.run_id FROM runs r
            WHERE (SELECT created_utc FROM events e WHERE e.run_id = r.run_id ORDER BY seq DESC LIMIT 1) < ?
            AND NOT EXISTS (SELECT 1 FROM events e WHERE e.run_id = r.run_id AND e.kind = 'close')
            AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.run_id = r.run_id AND j.state IN ('queued', 'running'))
            ORDER BY r.number"""
        with self.transaction():
            expired = tuple(row["run_id"] for row in self.query(idle, before) if not self.open_holds(row["run_id"]))
            for run_id in expired:
                self.close_run(run_id, f"expired: no work for {idle_s / 3600:g} h")
        return expired

    def register_candidate(
        self,
        run_id: str,
        candidate: Candidate,
        *,
        account: str,
        parent_id: str | None = None,
        note: str = "",
    ) -> tuple[CandidateRecord, bool]:
        """Register source files in a run; returns the record and whether it is new.

        The same source again returns the old candidate and records the new note as an event.

        Raises:
            UnknownId: no such run, or the parent is not in this run.
            RunClosed: the run takes no more work.
        """
        with self.transaction() as connection:
            self._open_run(run_id, account)
            if parent_id is not None:
                self.candidate(parent_id, account, run_id=run_id)
            row = self._row(
                "SELECT candidate_id FROM candidates WHERE run_id = ? AND source_sha256 = ?", run_id, candidate.digest
            )
            if row is not None:
                self._note(account, note, run_id=run_id, candidate_id=row["candidate_id"])
                return self.candidate(row["candidate_id"]), False
            (number,) = connection.execute("SELECT ifnull(max(number), 0) + 1 FROM candidates").fetchone()
            insert(connection, "candidates", {
                "number": number, "candidate_id": f"c{number}", "run_id": run_id, "source_sha256": candidate.digest,
                "parent_id": parent_id, "note": note, "language": candidate.language,
                "files_json": canonical_json(dict(candidate.files)), "created_utc": self._clock.utc(),
            })  # fmt: skip
            self._stand_for("candidates", f"c{number}", account, run_id)
            return self.candidate(f"c{number}"), True

    def _stand_for(self, table: str, key: object, account: str = HOUSE, run_id: str | None = None) -> None:
        """Write the event with the digest of a row that was just inserted: from now on the chain covers it."""
        with self.transaction() as connection:
            self.record_account(account)
            digest = RecordedRows(connection).digest(table, key)
            self._note(account, said(table, key), run_id=run_id, rows_sha256=digest)

    def _note(
        self,
        account: str,
        reason: str,
        *,
        run_id: str | None,
        candidate_id: str | None = None,
        rows_sha256: str | None = None,
    ) -> None:
        """An event that moves no purse; one of a run carries the purse as it stands."""
        purse = None if run_id is None else purse_text(self.purse(run_id))
        event = Event(
            kind="note", account_id=account, run_id=run_id, candidate_id=candidate_id, reason=reason,
            purse_json=purse, rows_sha256=rows_sha256,
        )  # fmt: skip
        with self.transaction() as connection:
            append(connection, self._clock, event)

    def record_account(self, account: str, device_s_cap: float | None = None) -> None:
        """Make an account known; with a cap, set what all its runs together may take of a device."""
        with self.transaction() as connection:
            if self._row("SELECT 1 FROM accounts WHERE account_id = ?", account) is None:
                insert(connection, "accounts", {"account_id": account, "created_utc": self._clock.utc()})
            if device_s_cap is not None:
                connection.execute(
                    "UPDATE accounts SET device_s_cap = ? WHERE account_id = ?", (float(device_s_cap), account)
                )

    def set_caps(self, device_s_caps: Mapping[str, float]) -> None:
        """What all runs of an account together may take of a device; accounts that are not named have no cap."""
        with self.transaction() as connection:
            connection.execute("UPDATE accounts SET device_s_cap = NULL WHERE device_s_cap NOT NULL")
            for account, device_s_cap in device_s_caps.items():
                self.record_account(account, device_s_cap)

    def record_task(self, task: Task) -> str:
        """Keep a task with its source; returns its digest."""
        with self.transaction() as connection:
            digest = task.digest
            if self._row("SELECT 1 FROM tasks WHERE task_digest = ?", digest) is None:
                insert(connection, "tasks", {
                    "task_digest": digest, "name": task.name, "title": task.title,
                    "spec_json": canonical_json(task.model_dump(mode="json")), "created_utc": self._clock.utc(),
                })  # fmt: skip
            return digest

    def record_environment(self, environment: Environment) -> str:
        """Keep the facts of an environment; returns its id. A known one waits for no turn to write."""
        environment_id, known = environment.environment_id, "SELECT 1 FROM environments WHERE environment_id = ?"
        if self._row(known, environment_id) is not None:
            return environment_id
        with self.transaction() as connection:
            if self._row(known, environment_id) is None:  # another server may have been sooner
                insert(connection, "environments", {
                    "environment_id": environment_id, "facts_json": canonical_json(environment.facts),
                    "created_utc": self._clock.utc(),
                })  # fmt: skip
        return environment_id

    def record_qualification(
        self, task: Task, environment: Environment, *, qualified: bool, why: str, facts: Json, paid: Amount
    ) -> QualificationRecord:
        """Keep the judgement of a task's fitness; `paid` is what the house spent on it."""
        with self.transaction() as connection:
            qualification_id = insert(connection, "qualifications", {
                "task_digest": self.record_task(task), "environment_id": self.record_environment(environment),
                "qualified": int(qualified), "why": why, "facts_json": canonical_json(facts),
                "gpu_s": paid.gpu_s, "cpu_s": paid.cpu_s, "created_utc": self._clock.utc(),
            })  # fmt: skip
            self._stand_for("qualifications", qualification_id)
            found = self.qualification(task.digest, environment.environment_id)
        assert found is not None
        return found

    def qualification(self, task_digest: str, environment_id: str) -> QualificationRecord | None:
        """The latest judgement of a task in an environment."""
        row = self._row(
            """SELECT task_digest, environment_id, qualified, why, facts_json, created_utc FROM qualifications
            WHERE task_digest = ? AND environment_id = ? ORDER BY qualification_id DESC LIMIT 1""",
            task_digest,
            environment_id,
        )
        return None if row is None else QualificationRecord.model_validate(_with_facts(row), strict=False)

    def record_calibration(
        self, environment: Environment, kind: str, facts: Json, *, paid: Amount, task_digest: str | None = None
    ) -> None:
        """Keep a calibration (noise floor, ceilings), of one task or, without `task_digest`, of the device."""
        with self.transaction() as connection:
            calibration_id = insert(connection, "calibrations", {
                "task_digest": task_digest, "environment_id": self.record_environment(environment), "kind": kind,
                "facts_json": canonical_json(facts), "gpu_s": paid.gpu_s, "cpu_s": paid.cpu_s,
                "created_utc": self._clock.utc(),
            })  # fmt: skip
            self._stand_for("calibrations", calibration_id)

    def calibration(self, environment_id: str, kind: str, task_digest: str | None = None) -> CalibrationRecord | None:
        """The latest calibration of a kind, of one task or of the device."""
        row = self._row(
            """SELECT task_digest, environment_id, kind, facts_json, created_utc FROM calibrations
            WHERE environment_id = ? AND kind = ? AND task_digest IS ? ORDER BY calibration_id DESC LIMIT 1""",
            environment_id,
            kind,
            task_digest,
        )
        return None if row is None else CalibrationRecord.model_validate(_with_facts(row), strict=False)

    def latest_observation(self, environment_id: str) -> Json | None:
        """What was seen last of the device while something was measured; None if nothing was."""
        row = self._row(
            "SELECT facts_json FROM observations WHERE environment_id = ? ORDER BY observation_id DESC LIMIT 1",
            environment_id,
        )
        return None if row is None else json.loads(row["facts_json"])

    def record_observation(self, environment: Environment, facts: Json) -> None:
        """Keep the state of a device that belongs to no result; those of results come with `settle`."""
        with self.transaction() as connection:
            environment_id = self.record_environment(environment)
            observation_id = insert_observation(connection, environment_id, None, facts, self._clock.utc())
            self._stand_for("observations", observation_id)


def _with_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    columns = {**row, "facts": json.loads(row["facts_json"])}
    del columns["facts_json"]
    return columns


__all__ = ["IDLE_LIMIT_S", "RunClosed", "Runs", "UnknownRule"]

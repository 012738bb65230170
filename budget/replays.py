"""Answers from the book: the same source on the same rung in the same environment is not measured twice."""

from typing import Final

from kernelgate.budget.chain import Event, append
from kernelgate.budget.model import Rung
from kernelgate.budget.outcomes import Refused, Replayed
from kernelgate.budget.purse import purse_text
from kernelgate.budget.records import ResultRecord
from kernelgate.budget.rows import insert, result_of
from kernelgate.budget.spending import Spending

_FREE: Final = ("gpu_s", "cpu_s", "work_s", "overrun_s", "house_s", "queue_s", "prepare_s", "wall_s")


class Replays(Spending):
    """Finding and recording free answers. Faults of ours leave no result, so none is ever replayed."""

    def find_replay(
        self,
        *,
        account: str,
        task_digest: str,
        source_sha256: str,
        rung: Rung,
        workload_set: str,
        environment_id: str,
        plan_digest: str,
    ) -> ResultRecord | None:
        """The latest measured result with this key in any run of the account; also a failed one."""
        row = self._row(
            """SELECT s.* FROM results s JOIN runs r ON r.run_id = s.run_id
            WHERE s.source_sha256 = ? AND s.task_digest = ? AND s.rung = ? AND s.workload_set = ?
            AND s.environment_id = ? AND s.plan_digest = ? AND s.replay_of IS NULL AND r.account_id = ?
            ORDER BY s.event_seq DESC LIMIT 1""",
            source_sha256,
            task_digest,
            rung.value,
            workload_set,
            environment_id,
            plan_digest,
            account,
        )
        return None if row is None else result_of(row)

    def record_replay(
        self,
        *,
        account: str,
        run_id: str,
        candidate_id: str,
        source_result_id: int,
        job_id: str | None = None,
        environment_of_below: str | None = None,
    ) -> Replayed | Refused:
        """Answer from the book: a result row of zero cost with `replay_of`, and a `note` event that carries its digest.

        Rules see it at the number of that event. A result of the same candidate is only noted, not copied.
        The run must be open and the rungs below passed, as for a measurement; purse and rule are not asked.

        Raises:
            UnknownId: run, candidate or result unknown to this account.
            RunClosed: the run takes no more work.
            ValueError: the result is of another source or task.
        """
        with self.transaction() as connection:
            run = self._open_run(run_id, account)
            candidate = self.candidate(candidate_id, account, run_id=run_id)
            source = self.result(source_result_id)
            self.run(source.run_id, account)
            if (source.source_sha256, source.task_digest) != (candidate.source_sha256, run.task_digest):
                raise ValueError(f"result {source_result_id} is of another source or task than {candidate_id}")
            shut = self.rung_missing(candidate_id, source.rung, source.environment_id, environment_of_below)
            if shut is not None:
                return self.refuse(
                    run_id=run_id, account=account, kind="rung_missing", why=shut[0], missing=shut[1],
                    candidate_id=candidate_id, rung=source.rung, environment_id=source.environment_id, job_id=job_id,
                )  # fmt: skip
            own = source.candidate_id == candidate_id
            result = source if own else self._copy(source, run_id, candidate_id)
            purse = self.purse(run_id)
            event = Event(
                kind="note", account_id=account, run_id=run_id, candidate_id=candidate_id, job_id=job_id,
                rung=source.rung.value, environment_id=source.environment_id, purse_json=purse_text(purse),
                reason=f"replay of result {source.result_id}",
                rows_sha256=None if own else self._paid.digest(result.result_id),
            )  # fmt: skip
            return Replayed(result=result, purse=purse, head=append(connection, self._clock, event))

    def _copy(self, source: ResultRecord, run_id: str, candidate_id: str) -> ResultRecord:
        row = self._row("SELECT * FROM results WHERE result_id = ?", source.result_id) or {}
        del row["result_id"]
        with self.transaction() as connection:
            result_id = insert(connection, "results", {
                **row, **dict.fromkeys(_FREE, 0.0), "event_seq": self.head().seq + 1, "run_id": run_id,
                "candidate_id": candidate_id, "replay_of": source.result_id, "created_utc": self._clock.utc(),
            })  # fmt: skip
        return self.result(result_id)

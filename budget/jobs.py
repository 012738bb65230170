"""Jobs: work belongs to the book, not to a request. A dead owner's jobs are lost, and their holds released."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from kernelgate.budget.errors import LedgerError, UnknownId
from kernelgate.budget.model import ESTIMATED
from kernelgate.budget.outcomes import Swept
from kernelgate.budget.records import InUse, JobRecord, JobRequest, Json, Owner
from kernelgate.budget.rows import insert
from kernelgate.budget.spending import Spending
from kernelgate.tasks.model import canonical_json

_ACTIVE: Final = "state IN ('queued', 'running')"
_OPEN_HOLDS: Final = """SELECT h.seq FROM events h WHERE h.job_id = {job} AND h.kind IN ('hold', 'override')
  AND NOT EXISTS (SELECT 1 FROM events e WHERE e.hold_seq = h.seq AND e.kind IN ('settle', 'release'))
  ORDER BY h.seq"""
_SUSPECTS: Final = f"""SELECT j.*,
  (julianday(?) - julianday(max(j.heartbeat_utc, ifnull(j.finished_utc, '')))) * 86400 AS quiet_s
  FROM jobs j WHERE {_ACTIVE} OR EXISTS ({_OPEN_HOLDS.format(job="j.job_id")}) ORDER BY j.number"""

IsAlive: TypeAlias = Callable[[Owner, float], bool]
"""An owner, and the seconds since its last sign of life → whether it still works."""


class JobEnded(LedgerError):
    """The job is done, cancelled or lost."""


class Jobs(Spending):
    """Opening, following, ending and sweeping jobs."""

    def open_job(self, request: JobRequest) -> tuple[JobRecord, bool]:
        """Open a job, or join the active one for the same work; returns it and whether it is new."""
        with self.transaction() as connection:
            self._open_run(request.run_id, request.account)
            active = self.find_active_job(request.run_id, request.candidate_id, request.tool, request.arguments_sha256)
            if active is not None:
                return active, False
            (number,) = connection.execute("SELECT ifnull(max(number), 0) + 1 FROM jobs").fetchone()
            utc = self._clock.utc()
            insert(connection, "jobs", {
                "number": number, "job_id": f"j{number}", "run_id": request.run_id,
                "candidate_id": request.candidate_id, "account_id": request.account, "tool": request.tool,
                "arguments_sha256": request.arguments_sha256, "arguments_json": canonical_json(request.arguments),
                "state": "queued", "owner_pid": request.owner.pid, "owner_start_s": float(request.owner.start_s),
                "owner_place": request.owner.place, "created_utc": utc, "heartbeat_utc": utc,
            })  # fmt: skip
            return self.job(f"j{number}"), True

    def find_active_job(
        self, run_id: str, candidate_id: str | None, tool: str, arguments_sha256: str
    ) -> JobRecord | None:
        """The queued or running job for exactly this work."""
        row = self._row(
            f"""SELECT * FROM jobs WHERE run_id = ? AND ifnull(candidate_id, '') = ifnull(?, '') AND tool = ?
            AND arguments_sha256 = ? AND {_ACTIVE}""",
            run_id,
            candidate_id,
            tool,
            arguments_sha256,
        )
        return None if row is None else _job_of(row)

    def job(self, job_id: str, account: str | None = None) -> JobRecord:
        """One job; raises UnknownId, also for another account's."""
        row = self._row("SELECT * FROM jobs WHERE job_id = ?", job_id)
        if row is None or account not in (None, row["account_id"]):
            raise UnknownId(f"unknown job {job_id!r}; a tool that takes long returns its job's id")
        return _job_of(row)

    def jobs(self, run_id: str, *, active_only: bool = False, limit: int = 50) -> tuple[JobRecord, ...]:
        """Jobs of a run, newest first."""
        where = f"AND {_ACTIVE}" if active_only else ""
        rows = self.query(f"SELECT * FROM jobs WHERE run_id = ? {where} ORDER BY number DESC LIMIT ?", run_id, limit)
        return tuple(_job_of(row) for row in rows)

    def tell_lost(self, run_id: str, most: int) -> tuple[tuple[str, ...], int]:
        """The lost jobs of a run that were not told yet, newest first, and how many there are beside those.

        All of them count as told from now on: the next time only what was lost since is named.
        """
        untold = "run_id = ? AND state = 'lost' AND loss_told = 0"
        with self.transaction() as connection:
            rows = self.query(f"SELECT job_id FROM jobs WHERE {untold} ORDER BY number DESC", run_id)
            connection.execute(f"UPDATE jobs SET loss_told = 1 WHERE {untold}", (run_id,))
        job_ids = tuple(row["job_id"] for row in rows)
        return job_ids[:most], len(job_ids[most:])

    def start_job(self, job_id: str) -> JobRecord:
        """From queued to running.

        Raises:
            JobEnded: it has ended meanwhile; do not start the work.
        """
        with self.transaction() as connection:
            self._active(job_id)
            connection.execute(
                "UPDATE jobs SET state = 'running', heartbeat_utc = ? WHERE job_id = ?", (self._clock.utc(), job_id)
            )
            return self.job(job_id)

    def finish_job(self, job_id: str, result: Json) -> JobRecord:
        """Keep what the job answered.

        Raises:
            JobEnded: it was cancelled or lost before.
        """
        return self._end(job_id, "done", result)

    def cancel_job(self, job_id: str, result: Json | None = None) -> JobRecord:
        """Mark a job cancelled. Whoever works on it ends its hold: at measured cost, or released if it never began.

        Raises:
            JobEnded: it has ended before.
        """
        return self._end(job_id, "cancelled", result)

    def heartbeat(self, owner: Owner, in_use: Sequence[InUse] = ()) -> int:
        """Say that an owner lives, and what its jobs have used so far; returns how many active jobs it has.

        It waits for no disk: a heartbeat that a power cut takes away is one that came too late.
        """
        with self.transaction(durable=False) as connection:
            for used in in_use:
                connection.execute(
                    f"UPDATE jobs SET used_hold_seq = ?, used_device_s = ? WHERE job_id = ? AND {_ACTIVE}",
                    (used.hold_seq, round(used.device_s, 9), used.job_id),
                )
            return connection.execute(
                f"""UPDATE jobs SET heartbeat_utc = ?
                WHERE owner_pid = ? AND owner_start_s = ? AND owner_place = ? AND {_ACTIVE}""",
                (self._clock.utc(), owner.pid, float(owner.start_s), owner.place),
            ).rowcount

    def sweep(self, is_alive: IsAlive) -> Swept:
        """Mark the jobs of dead owners lost and release their holds, each exactly once.

        What a hold had used of the device by the last heartbeat is booked on the house, as the estimate that it is.
        A stale heartbeat alone is not a failure: only `is_alive` decides. Holds that an ended job left open (its
        process died between the two) are released too.
        """
        # A time that cannot be read is one that nobody wrote: then it has been quiet for ever.
        dead = [
            row["job_id"]
            for row in self.query(_SUSPECTS, self._clock.utc())
            if not is_alive(_owner_of(row), math.inf if row["quiet_s"] is None else row["quiet_s"])
        ]
        jobs: list[str] = []
        released: list[int] = []
        for job_id in dead:
            with self.transaction() as connection:
                lost = connection.execute(
                    f"UPDATE jobs SET state = 'lost', finished_utc = ? WHERE job_id = ? AND {_ACTIVE}",
                    (self._clock.utc(), job_id),
                ).rowcount
                jobs.extend([job_id] * lost)
                for row in self.query(_OPEN_HOLDS.format(job="?"), job_id):
                    self._release_lost(job_id, row["seq"])
                    released.append(row["seq"])
        return Swept(jobs=tuple(jobs), released=tuple(released))

    def _release_lost(self, job_id: str, hold_seq: int) -> None:
        used = self._row("SELECT used_device_s FROM jobs WHERE job_id = ? AND used_hold_seq = ?", job_id, hold_seq)
        used_s = 0.0 if used is None else float(used["used_device_s"])
        why = f"the process that worked on {job_id} is gone"
        if used_s > 0:
            why += ESTIMATED.format(used_s)
        self.release(hold_seq, "owner_lost", why, house_s=used_s)

    def _active(self, job_id: str) -> JobRecord:
        job = self.job(job_id)
        if job.state not in ("queued", "running"):
            raise JobEnded(f"job {job_id} is {job.state}; ask again to start the work anew")
        return job

    def _end(self, job_id: str, state: Literal["done", "cancelled"], result: Json | None) -> JobRecord:
        text = None if result is None else canonical_json(result)
        with self.transaction() as connection:
            self._active(job_id)
            connection.execute(
                "UPDATE jobs SET state = ?, result_json = ?, finished_utc = ? WHERE job_id = ?",
                (state, text, self._clock.utc(), job_id),
            )
            return self.job(job_id)


def _job_of(row: Mapping[str, Any]) -> JobRecord:
    plain = {name: value for name, value in row.items() if name in JobRecord.model_fields}
    return JobRecord.model_validate(
        {
            **plain,
            "arguments": json.loads(row["arguments_json"]),
            "result": None if row["result_json"] is None else json.loads(row["result_json"]),
            "owner": _owner_of(row),
        },
        strict=False,
    )


def _owner_of(row: Mapping[str, Any]) -> Owner:
    return Owner(pid=row["owner_pid"], start_s=row["owner_start_s"], place=row["owner_place"])

"""Reading the book: runs, candidates, results, purses, what a rule may see, learned prices."""

import json
import math
import statistics
from collections.abc import Mapping
from typing import Any, Final, Literal

from kernelgate.budget.connection import Session
from kernelgate.budget.errors import LedgerError, UnknownId
from kernelgate.budget.history import Timing, fold_history
from kernelgate.budget.model import PASSING, History, Purse, Rung, Scored, Verdict
from kernelgate.budget.outcomes import LearnedPrice, Prices
from kernelgate.budget.promotion import Rule, incumbent_of
from kernelgate.budget.records import CandidateRecord, ResultRecord, RunRecord, TaskRecord
from kernelgate.budget.rows import SampleRows, result_of, samples_of
from kernelgate.budget.rules import rule_of

PRICE_PERCENTILE: Final = 0.9
PRICE_HEADROOM: Final = 1.5
"""Extending a hold costs a second run of the call, holding too much only blocks the purse for a moment."""
PRICE_ROOM_S: Final = 0.5
"""Beside that: a call of 0.2 s takes 0.4 s where several agents share the device and nothing was started ahead."""
FULL: Final = ":full"
"""Ends the workload set of a result that cost more than the rung usually does; no price is learned from it."""
PRICE_WINDOW: Final = 200
"""Latest results that a price is learned from."""
_RUN: Final = """
SELECT r.*, (SELECT created_utc FROM events e WHERE e.run_id = r.run_id ORDER BY seq DESC LIMIT 1) AS last_utc,
  (SELECT reason FROM events e WHERE e.run_id = r.run_id AND e.kind = 'close') AS closed
FROM runs r"""
_TIMINGS: Final = """
SELECT rung, candidate_id, verdict, ratio, ratio_low, ratio_high, gpu_s + cpu_s AS device_s, event_seq
FROM results WHERE run_id = ? AND environment_id = ? AND rung IN ('quick', 'precise') ORDER BY event_seq"""
_OVERLAPS: Final = """
SELECT h.seq FROM events h
WHERE h.run_id = ? AND h.kind = 'hold' AND h.rung = 'precise' AND h.environment_id = ?
  AND json_extract(h.decision_json, '$.saw.rank') > json_extract(h.decision_json, '$.saw.cut')
  AND NOT EXISTS (SELECT 1 FROM events e WHERE e.hold_seq = h.seq AND e.kind = 'release')"""


class Reads(Session):
    """Look-ups. With `account`, what belongs to another account reads as unknown."""

    def run(self, run_id: str, account: str | None = None) -> RunRecord:
        """One run; raises UnknownId."""
        row = self._row(f"{_RUN} WHERE r.run_id = ?", run_id)
        if row is None or account not in (None, row["account_id"]):
            raise unknown_run(run_id)
        return _run_of(row)

    def runs(self, account: str | None = None, *, limit: int = 100) -> tuple[RunRecord, ...]:
        """Runs of an account (or of all), newest first."""
        where = "" if account is None else "WHERE r.account_id = ?"
        values = () if account is None else (account,)
        rows = self.query(f"{_RUN} {where} ORDER BY r.number DESC LIMIT ?", *values, limit)
        return tuple(_run_of(row) for row in rows)

    def task(self, task_digest: str) -> TaskRecord:
        """A task as a run used it; raises UnknownId."""
        row = self._row("SELECT task_digest, name, title, spec_json FROM tasks WHERE task_digest = ?", task_digest)
        if row is None:
            raise UnknownId(f"unknown task digest {task_digest[:80]!r}")
        spec = json.loads(row.pop("spec_json"))
        return TaskRecord(**row, spec=spec)

    def environment(self, environment_id: str) -> dict[str, Any]:
        """The facts of an environment; raises UnknownId."""
        row = self._row("SELECT facts_json FROM environments WHERE environment_id = ?", environment_id)
        if row is None:
            raise UnknownId(f"unknown environment {environment_id[:80]!r}")
        facts: dict[str, Any] = json.loads(row["facts_json"])
        return facts

    def candidate(self, candidate_id: str, account: str | None = None, *, run_id: str | None = None) -> CandidateRecord:
        """One candidate with its files; raises UnknownId, also for a candidate of another run than `run_id`."""
        row = self._row(
            "SELECT c.*, r.account_id FROM candidates c JOIN runs r USING (run_id) WHERE c.candidate_id = ?",
            candidate_id,
        )
        if row is None or account not in (None, row["account_id"]) or run_id not in (None, row["run_id"]):
            where = "" if run_id is None else f" in run {run_id!r}"
            raise UnknownId(f"unknown candidate {candidate_id!r}{where}; `compile` registers one and returns its id")
        return _candidate_of(row, with_files=True)

    def candidates(
        self, run_id: str, *, order: Literal["newest", "oldest", "best"] = "newest", limit: int = 50
    ) -> tuple[CandidateRecord, ...]:
        """Candidates of a run without their files. `best`: by the leaderboard of the run's environment, then newest."""
        by = {
            "newest": "c.number DESC",
            "oldest": "c.number",
            "best": "l.place IS NULL, l.place, c.number DESC",
        }[order]
        joined = ""
        if order == "best":
            joined = """LEFT JOIN leaderboard l ON l.run_id = r.run_id AND l.candidate_id = c.candidate_id
                AND l.environment_id = r.environment_id"""
        rows = self.query(
            f"""SELECT c.candidate_id, c.run_id, c.source_sha256, c.parent_id, c.note, c.language, c.created_utc
            FROM candidates c JOIN runs r ON r.run_id = c.run_id {joined}
            WHERE c.run_id = ? ORDER BY {by} LIMIT ?""",
            run_id,
            limit,
        )
        return tuple(_candidate_of(row, with_files=False) for row in rows)

    def results(self, candidate_id: str) -> tuple[ResultRecord, ...]:
        """All results of a candidate, oldest first; failed ones and replays too."""
        rows = self.query("SELECT * FROM results WHERE candidate_id = ? ORDER BY event_seq", candidate_id)
        return tuple(result_of(row) for row in rows)

    def result(self, result_id: int) -> ResultRecord:
        """One result; raises UnknownId."""
        row = self._row("SELECT * FROM results WHERE result_id = ?", result_id)
        if row is None:
            raise UnknownId(f"unknown result {result_id}")
        return result_of(row)

    def latest_result(self, candidate_id: str, rung: Rung, environment_id: str | None) -> ResultRecord | None:
        """The latest result of a candidate at a rung, in one environment or in any."""
        row = self._row(
            """SELECT * FROM results WHERE candidate_id = ? AND rung = ? AND environment_id = ifnull(?, environment_id)
            ORDER BY event_seq DESC LIMIT 1""",
            candidate_id,
            rung.value,
            environment_id,
        )
        return result_of(row) if row else None

    def samples(self, result_id: int) -> SampleRows:
        """The raw blocks of a result, in order."""
        rows = self.query("SELECT * FROM samples WHERE result_id = ? ORDER BY sample_id", result_id)
        return samples_of(rows)

    def purse(self, run_id: str) -> Purse:
        """What a run was granted, holds open and has settled; raises UnknownId."""
        row = self._row("SELECT purse_json FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT 1", run_id)
        if row is None:
            raise UnknownId(f"unknown run {run_id!r}")
        return Purse.model_validate_json(row["purse_json"])

    def history(self, run_id: str, environment_id: str | None = None) -> History:
        """What the run's rule may look at, in the run's environment or another one."""
        environment_id = environment_id or self.run(run_id).environment_id
        timings = [
            Timing(Rung(row[0]), row[1], Verdict(row[2]), row[3], row[4], row[5], row[6], row[7])
            for row in (tuple(found.values()) for found in self.query(_TIMINGS, run_id, environment_id))
        ]
        overlaps = [int(row["seq"]) for row in self.query(_OVERLAPS, run_id, environment_id)]
        return fold_history(timings, overlaps, self.purse(run_id), self.head().seq)

    def rule_of(self, run: RunRecord) -> Rule[Any]:
        """The rule of a run in the version that it began with; raises RuleNotHere."""
        return rule_of(run.rule, run.rule_version, self.rules)

    def incumbent(self, run_id: str, environment_id: str | None = None) -> Scored | None:
        """The best precisely measured correct candidate of a run in one environment."""
        return incumbent_of(self.history(run_id, environment_id))

    def is_open(self, hold_seq: int) -> bool:
        """Whether a hold has neither been settled nor released; raises UnknownId."""
        hold = self._hold(hold_seq)
        ended = "SELECT 1 FROM events WHERE hold_seq = ? AND kind IN ('settle', 'release')"
        return self._row(ended, hold["seq"]) is None

    def open_holds(self, run_id: str) -> tuple[int, ...]:
        """Numbers of the holds of a run that are open."""
        rows = self.query(
            """SELECT h.seq FROM events h WHERE h.run_id = ? AND h.kind IN ('hold', 'override') AND NOT EXISTS
            (SELECT 1 FROM events e WHERE e.hold_seq = h.seq AND e.kind IN ('settle', 'release')) ORDER BY h.seq""",
            run_id,
        )
        return tuple(row["seq"] for row in rows)

    def jobs_that_hold(self, run_id: str) -> tuple[str, ...]:
        """Jobs for which something of a run's purse is held now, the oldest hold first."""
        rows = self.query(
            """SELECT h.job_id FROM events h WHERE h.run_id = ? AND h.kind IN ('hold', 'override')
            AND NOT EXISTS (SELECT 1 FROM events e WHERE e.hold_seq = h.seq AND e.kind IN ('settle', 'release'))
            GROUP BY h.job_id ORDER BY min(h.seq)""",
            run_id,
        )
        return tuple(row["job_id"] for row in rows)

    def prices(self, task_digest: str, environment_id: str) -> Prices:
        """What each rung cost on a task in an environment, by passing, measured results; others are missing.

        By what was measured, not by what was charged: a price learned from charges could never outgrow its own holds.
        """
        found: dict[Rung, LearnedPrice] = {}
        for rung in Rung:
            passing = [verdict.value for verdict in PASSING[rung]]
            rows = self.query(
                f"""SELECT gpu_s + cpu_s + overrun_s AS device_s, max(work_s, wall_s) AS work_s FROM results
                WHERE task_digest = ? AND environment_id = ? AND rung = ? AND replay_of IS NULL
                AND verdict IN ({", ".join("?" * len(passing))}) AND workload_set NOT LIKE ?
                ORDER BY result_id DESC LIMIT {PRICE_WINDOW}""",
                task_digest,
                environment_id,
                rung.value,
                *passing,
                f"%{FULL}",
            )
            if rows:
                found[rung] = _price(rung, [row["device_s"] for row in rows], [row["work_s"] for row in rows])
        return found

    def _hold(self, hold_seq: int) -> Mapping[str, Any]:
        row = self._row("SELECT * FROM events WHERE seq = ? AND kind IN ('hold', 'override')", hold_seq)
        if row is None:
            raise UnknownId(f"there is no hold {hold_seq}")
        return row

    def _open_run(self, run_id: str, account: str) -> RunRecord:
        run = self.run(run_id, account)
        if run.closed is not None:
            raise RunClosed(f"run {run_id} is closed ({run.closed}); start a new run with `start_run`")
        return run


class RunClosed(LedgerError):
    """The run takes no more work."""


def unknown_run(run_id: str) -> UnknownId:
    """There is no such run, or it belongs to another account: the two are not told apart."""
    return UnknownId(f"unknown run {run_id!r}; `start_run` makes one and returns its id")


def _price(rung: Rung, device_s: list[float], work_s: list[float]) -> LearnedPrice:
    return LearnedPrice(
        rung=rung,
        n=len(device_s),
        device_s_median=statistics.median(device_s),
        hold_device_s=_percentile(device_s) * PRICE_HEADROOM + PRICE_ROOM_S,
        hold_work_s=_percentile(work_s) * PRICE_HEADROOM + PRICE_ROOM_S,
    )


def _percentile(values: list[float]) -> float:
    return sorted(values)[max(0, math.ceil(PRICE_PERCENTILE * len(values)) - 1)]


def _run_of(row: dict[str, Any]) -> RunRecord:
    names = RunRecord.model_fields
    plain = {name: value for name, value in row.items() if name in names}
    parameters, budget = json.loads(row["parameters_json"]), json.loads(row["budget_json"])
    return RunRecord.model_validate({**plain, "parameters": parameters, "budget": budget}, strict=False)


def _candidate_of(row: dict[str, Any], *, with_files: bool) -> CandidateRecord:
    files: dict[str, str] = json.loads(row["files_json"]) if with_files else {}
    plain = {name: value for name, value in row.items() if name in CandidateRecord.model_fields}
    return CandidateRecord.model_validate({**plain, "files": files}, strict=False)

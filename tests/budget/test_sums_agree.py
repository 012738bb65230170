"""Every sum of charged seconds is the same sum, however holds end: random lives of a book, and one by hand."""

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any, get_args

import pytest
from book_scenario import ACCOUNT, OWNER, TASK, Scenario, result_input, run_request
from faults import JumpyClock
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Budget, Rung, UnjudgedReason, Verdict
from kernelgate.budget.outcomes import Admitted
from kernelgate.budget.records import InUse
from kernelgate.budget.report import funnel, leaderboard, savings, spent_per_candidate, spent_per_rung

BUDGET = Budget(device_s=30.0, deadline_s=60.0)
VERDICTS = {
    Rung.check: [Verdict.correct, Verdict.timed_out],
    Rung.quick: [Verdict.maybe_faster, Verdict.crashed],
    Rung.precise: [Verdict.faster, Verdict.crashed],
}
seconds = st.floats(0.0, 3.0)


def total(values: Any) -> float:
    return round(math.fsum(values), 9)


def agree(ledger: Ledger, run_id: str) -> None:
    """What a run was charged, by everything that adds it up; equal to the last digit."""
    settled = ledger.purse(run_id).settled
    (balance,) = ledger.query("SELECT * FROM balance WHERE run_id = ?", run_id)
    assert (balance["settled_device_s"], balance["settled_work_s"]) == (settled.device_s, settled.work_s)
    for view in ("charges", "spending"):
        rows = ledger.query(f"SELECT * FROM {view} WHERE run_id = ?", run_id)
        assert total(row["gpu_s"] + row["cpu_s"] for row in rows) == settled.device_s, view
        assert total(row["work_s"] for row in rows) == settled.work_s, view
    rungs = funnel(ledger, run_id)
    assert total(row.device_s for row in rungs) == settled.device_s
    assert [row.calls for row in rungs] == [getattr(settled, f"{row.rung}_calls") for row in rungs]
    assert {row.rung.value: row.device_s for row in rungs if row.calls} == spent_per_rung(ledger, run_id)
    spent_s = spent_per_candidate(ledger, run_id)
    assert total(spent_s.values()) == settled.device_s
    for row in leaderboard(ledger, run_id):
        assert row.device_s == spent_s.get(row.candidate_id, 0.0)
    saved = savings(ledger, run_id)
    assert saved.spent_device_s == settled.device_s
    assert saved.quick_device_s == spent_per_rung(ledger, run_id).get("quick", 0.0)


class Sums(RuleBasedStateMachine):
    @initialize(device=st.sampled_from(["gpu_s", "cpu_s"]))
    def open_book(self, device: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.device = device
        self.clock = JumpyClock()
        self.book = Scenario(self.folder / "book.db", self.clock, budget=BUDGET)
        self.runs = ["r1"]
        self.candidates = [self.book.climb(Rung.compile), self.book.climb(Rung.quick)]
        self.open: dict[int, Rung] = {}
        self.measured: dict[int, Amount] = {}
        self.used: dict[int, float] = {}
        self.lost_s = 0.0

    def amount(self, device_s: float, work_s: float) -> Amount:
        return Amount(calls=1, work_s=work_s, **{self.device: device_s})

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.open)))

    def end(self, data: st.DataObject, device_s: float, work_s: float) -> tuple[int, Rung, Amount]:
        hold_seq = self.pick(data)
        self.measured[hold_seq] = self.amount(device_s, work_s)
        return hold_seq, self.open.pop(hold_seq), self.measured[hold_seq]

    @rule(data=st.data(), rung=st.sampled_from(sorted(VERDICTS)), device_s=seconds, work_s=seconds)
    def hold(self, data: st.DataObject, rung: Rung, device_s: float, work_s: float) -> None:
        candidate = data.draw(st.sampled_from(self.candidates))
        request = self.book.request(candidate, rung)
        answer = self.book.ledger.admit(request.model_copy(update={"hold": self.amount(device_s, work_s)}))
        if isinstance(answer, Admitted):
            self.open[answer.hold_seq] = rung

    @precondition(lambda self: self.open)
    @rule(data=st.data(), device_s=seconds, work_s=seconds)
    def extend(self, data: st.DataObject, device_s: float, work_s: float) -> None:
        hold_seq = self.pick(data)
        if not self.book.ledger.open_hold(hold_seq).extended:
            self.book.ledger.extend(hold_seq, self.amount(device_s, work_s))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), device_s=seconds, work_s=seconds)
    def settle(self, data: st.DataObject, device_s: float, work_s: float) -> None:
        hold_seq, rung, measured = self.end(data, device_s, work_s)
        self.book.ledger.settle(hold_seq, measured, result_input(rung, data.draw(st.sampled_from(VERDICTS[rung]))))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), device_s=seconds, work_s=seconds, reason=st.sampled_from(["cancelled", "purse_ended"]))
    def settle_unjudged(self, data: st.DataObject, device_s: float, work_s: float, reason: Any) -> None:
        hold_seq, _, measured = self.end(data, device_s, work_s)
        self.book.ledger.settle_unjudged(hold_seq, measured, reason)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), house_s=seconds, reason=st.sampled_from(["fault_of_ours", "cancelled_unstarted"]))
    def release(self, data: st.DataObject, house_s: float, reason: Any) -> None:
        hold_seq = self.pick(data)
        del self.open[hold_seq]
        self.clock.passed_s += house_s
        self.book.ledger.release(hold_seq, reason, house_s=house_s)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), used_s=seconds)
    def beat(self, data: st.DataObject, used_s: float) -> None:
        hold_seq, job_id = self.pick(data), self.book.job_record.job_id
        self.clock.passed_s += used_s
        self.book.ledger.heartbeat(OWNER, [InUse(job_id=job_id, hold_seq=hold_seq, device_s=used_s)])
        self.used = {hold_seq: round(used_s, 9)}

    @rule()
    def crash(self) -> None:
        self.book.ledger.close()
        self.book.ledger = Ledger.open(self.book.path, self.clock)
        self.book.ledger.sweep(lambda owner, quiet_s: False)
        self.lost_s += sum(self.used.get(hold_seq, 0.0) for hold_seq in self.open)
        self.open.clear()
        self.book.job_record = self.book.job()

    @precondition(lambda self: not self.open and len(self.runs) < 3)
    @rule()
    def expire(self) -> None:
        """The old run ends, a new one starts with a source that the book knows: answered from it, free."""
        ledger, known = self.book.ledger, self.candidates[1]
        ledger.cancel_job(self.book.job_record.job_id)
        assert ledger.expire_runs(idle_s=-1.0)
        self.book.run = ledger.start_run(TASK, run_request(budget=BUDGET))
        self.runs.append(self.book.run.run_id)
        self.book.job_record = self.book.job()
        again = self.book.candidate(ledger.candidate(known.candidate_id).files["candidate.py"])
        for result in [stored for stored in ledger.results(known.candidate_id)[:3] if stored.replay_of is None]:
            ledger.record_replay(
                account=ACCOUNT, run_id=again.run_id, candidate_id=again.candidate_id, source_result_id=result.result_id
            )
        self.candidates = [self.book.climb(Rung.compile), again]

    @invariant()
    def all_sums_agree(self) -> None:
        for run_id in getattr(self, "runs", ()):
            agree(self.book.ledger, run_id)

    @invariant()
    def what_lost_owners_used_is_the_houses(self) -> None:
        if hasattr(self, "book"):
            (house,) = self.book.ledger.query("SELECT lost_device_s FROM cost_per_account WHERE account_id = 'house'")
            assert house["lost_device_s"] == round(self.lost_s, 9)

    @invariant()
    def what_was_measured_is_charged_or_the_houses(self) -> None:
        for hold_seq, measured in getattr(self, "measured", {}).items():
            (row,) = self.book.ledger.query("SELECT * FROM charges WHERE hold_seq = ?", hold_seq)
            assert total([row["gpu_s"], row["cpu_s"], row["overrun_s"]]) == measured.device_s
            assert total([row["work_s"], row["overrun_work_s"]]) == round(measured.work_s, 9)

    def teardown(self) -> None:
        if hasattr(self, "book"):
            report = audit(self.book.path)
            self.book.ledger.close()
            shutil.rmtree(self.folder)
            assert report.ok, report.findings


Sums.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # each step is synced to disk
)
TestAllSums = Sums.TestCase


@pytest.mark.parametrize("reason", get_args(UnjudgedReason))
def test_what_was_charged_without_a_verdict_stands_in_every_sum_under_its_reason(
    tmp_path: Path, reason: UnjudgedReason
) -> None:
    book = Scenario(tmp_path / "book.db")
    candidate = book.climb(Rung.compile)
    holds = [book.hold(candidate, Rung.check, cpu_s) for cpu_s in (0.1, 0.2)]
    for hold in holds:
        book.ledger.settle_unjudged(hold.hold_seq, Amount(calls=1, cpu_s=9.0, work_s=0.7), reason)
    agree(book.ledger, "r1")
    (spent,) = book.ledger.query("SELECT * FROM spending WHERE rung = 'check'")
    assert (spent["outcome"], spent["charges"], spent["results"], spent["cpu_s"]) == (reason, 2, 0, 0.3)
    charges = book.ledger.query("SELECT hold_seq, outcome, result_id, cpu_s FROM charges WHERE rung = 'check'")
    assert [tuple(row.values()) for row in charges] == [
        (hold.hold_seq, reason, None, cpu_s) for hold, cpu_s in zip(holds, (0.1, 0.2), strict=True)
    ]
    assert savings(book.ledger, "r1").unjudged_device_s == spent_per_candidate(book.ledger, "r1")["c1"] == 0.3

"""Random lives of a book: hold, extend, settle, release, crash; a plain model of the purse runs beside it."""

import shutil
import tempfile
from pathlib import Path

from book_scenario import Scenario, result_input
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Budget, Rung, Verdict
from kernelgate.budget.outcomes import Admitted, Extended

GRANTED_S = 10.0
CALLS = 12
seconds = st.floats(0.0, 6.0).map(lambda value: round(value, 9))


class PurseMachine(RuleBasedStateMachine):
    @initialize()
    def open_book(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        budget = Budget(device_s=GRANTED_S, check_calls=CALLS, deadline_s=15.0)
        self.book = Scenario(self.folder / "book.db", budget=budget)
        self.candidate = self.book.climb(Rung.compile)
        self.open: dict[int, Amount] = {}
        self.extended: set[int] = set()
        self.settled_s = 0.0
        self.settled_calls = 0
        self.head = self.book.ledger.head()

    @rule(cpu_s=seconds, least_s=seconds, work_s=seconds)
    def hold(self, cpu_s: float, least_s: float, work_s: float) -> None:
        request = self.book.request(
            self.candidate, Rung.check, cpu_s, work_s=work_s, least=Amount(cpu_s=min(cpu_s, least_s))
        )
        left_s = self.book.ledger.purse("r1").device_s_left
        answer = self.book.ledger.admit(request)
        if isinstance(answer, Admitted):
            assert answer.hold.cpu_s <= left_s + 1e-9
            self.open[answer.hold_seq] = answer.hold
        else:
            assert answer.kind in ("purse", "deadline")

    @precondition(lambda self: set(self.open) - self.extended)
    @rule(data=st.data(), cpu_s=seconds)
    def extend(self, data: st.DataObject, cpu_s: float) -> None:
        hold_seq = data.draw(st.sampled_from(sorted(set(self.open) - self.extended)))
        answer = self.book.ledger.extend(hold_seq, Amount(cpu_s=cpu_s))
        if isinstance(answer, Extended):
            self.extended.add(hold_seq)
            self.open[hold_seq] = answer.hold

    @precondition(lambda self: self.open)
    @rule(data=st.data(), cpu_s=seconds, verdict=st.sampled_from([Verdict.correct, Verdict.crashed]))
    def settle(self, data: st.DataObject, cpu_s: float, verdict: Verdict) -> None:
        hold_seq = data.draw(st.sampled_from(sorted(self.open)))
        held = self.open.pop(hold_seq)
        settled = self.book.ledger.settle(
            hold_seq, Amount(calls=1, cpu_s=cpu_s, work_s=cpu_s), result_input(Rung.check, verdict)
        )
        assert settled.charged.cpu_s == min(cpu_s, held.cpu_s)
        assert settled.overrun_s == round(max(0.0, cpu_s - held.cpu_s), 9)
        self.settled_s += settled.charged.cpu_s
        self.settled_calls += 1

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        hold_seq = data.draw(st.sampled_from(sorted(self.open)))
        self.book.ledger.release(hold_seq, "fault_of_ours")
        del self.open[hold_seq]

    @rule()
    def crash(self) -> None:
        self.book.ledger.close()
        self.book.ledger = Ledger.open(self.book.path)
        swept = self.book.ledger.sweep(lambda owner, quiet_s: False)
        assert sorted(swept.released) == sorted(self.open)
        self.open.clear()
        self.book.job_record = self.book.job()

    @invariant()
    def the_purse_is_what_the_model_says(self) -> None:
        if not hasattr(self, "book"):
            return
        purse = self.book.ledger.purse("r1")
        held_s = sum(amount.cpu_s for amount in self.open.values())
        assert abs(purse.open.device_s - held_s) < 1e-6
        assert abs(purse.settled.device_s - self.settled_s) < 1e-6
        assert purse.open.device_s + purse.settled.device_s <= GRANTED_S + 1e-6
        assert (purse.open.check_calls, purse.settled.check_calls) == (len(self.open), self.settled_calls)
        assert purse.calls_left(Rung.check) >= 0
        assert self.book.ledger.open_holds("r1") == tuple(sorted(self.open))

    def teardown(self) -> None:
        if hasattr(self, "book"):
            report = audit(self.book.path, head=self.head)
            self.book.ledger.close()
            shutil.rmtree(self.folder)
            assert report.ok, report.findings


PurseMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # each step is synced to disk
)
TestThePurse = PurseMachine.TestCase

"""Random lives of a book that two processes write, die in, run out of disk in and forge, under clocks that jump.

After each step the book is audited whole, and its purses are what the events add up to. What went wrong is there wholly
or not at all: a refused write leaves the head where it was, a dead process all of its transaction or nothing.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from book_scenario import (
    ACCOUNT,
    ENVIRONMENT,
    PASS,
    SCORED,
    TARGET,
    TASK,
    Scenario,
    result_input,
    run_request,
    sample_inputs,
)
from faults import Died, Fault, JumpyClock, Process
from forgeries import FORGERIES, changed_by_forgery
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kernelgate.budget.audit import audit
from kernelgate.budget.errors import LedgerError
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import LADDER, Amount, Budget, Rung, Verdict
from kernelgate.budget.outcomes import AdmitRequest
from kernelgate.budget.records import ArtifactInput, InUse, JobRequest, Owner
from kernelgate.tasks.model import Candidate

BUDGET = Budget(device_s=30.0, deadline_s=60.0, check_calls=40, override_calls=3)
Rows = list[dict[str, Any]]
MOST_RUNS = 3
KEEPER = 2
YEAR_S = 365 * 24 * 3600.0
FAILS = {
    Rung.compile: Verdict.build_failed, Rung.check: Verdict.crashed, Rung.quick: Verdict.clearly_slower,
    Rung.precise: Verdict.slower,
}  # fmt: skip
seconds = st.floats(0.0, 5.0).map(lambda value: round(value, 9))
faults = st.one_of(
    st.none(), st.none(),
    st.builds(Fault, st.sampled_from(["dies_before", "dies_after", "full", "failing", "busy"]), st.integers(0, 9)),
)  # fmt: skip
ratios = st.sampled_from([0.5, 1.2, 2.0])
rungs = st.sampled_from(LADDER)
tables = st.sampled_from(["events", "results", "samples", "candidates", "runs", "artifacts", "observations", "tasks"])
who = st.sampled_from([0, 1])


class FaultyBook(RuleBasedStateMachine):
    @initialize()
    def open_book(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "book.db"
        scenario = Scenario(self.path, rule="halving", budget=BUDGET)
        self.candidates = furnished(scenario)
        scenario.ledger.close()
        self.clock = JumpyClock()
        self.processes = [Process(self.path, self.clock) for _ in range(2)]
        self.lives = [1, 2]
        self.watch = Ledger.open(self.path)
        self.runs = ["r1"]
        self.open: dict[int, Amount] = {}
        self.extended: set[int] = set()
        self.run_of: dict[int, str] = {}
        self.owner_of: dict[int, int] = {}
        self.settled = {"r1": settled_by(self.watch, "r1")}
        self.heads = [self.watch.head()]
        self._job(KEEPER)

    # -- how a step is taken ------------------------------------------------------------------------------------------

    def _job(self, n: int) -> str:
        """The job of a process in the run of today; that of the keeper stays, so that the run has work in flight."""
        life = 0 if n == KEEPER else self.lives[n]
        request = JobRequest(
            run_id=self.runs[-1], account=ACCOUNT, tool="compile", arguments={"life": life},
            owner=Owner(pid=n + 1, start_s=float(life)),
        )  # fmt: skip
        return self.watch.open_job(request)[0].job_id

    def attempt(
        self,
        n: int,
        fault: Fault | None,
        work: Callable[[Ledger], object],
        expect: Callable[[Rows], None],
    ) -> None:
        """One call by one process. Its events are all there and as expected, or none is."""
        before, process, life = self.watch.head(), self.processes[n], self.lives[n]
        process.meet(fault)
        done = died = False
        try:
            work(process.ledger)
            done = True
        except LedgerError:
            assert fault is not None, "only what was made to fail may fail"
        except Died:
            died = True
        process.meet(None)
        if died:
            process.restart()
            self.lives[n] += 2
        rows = self.watch.query("SELECT * FROM events WHERE seq > ? ORDER BY seq", before.seq)
        if rows:
            assert done or died, "an error was raised, so nothing may be written"
        if rows or done:
            expect(rows)
        for row in rows:
            self.fold(row, life)
        self.heads.append(self.watch.head())

    def fold(self, row: dict[str, Any], life: int) -> None:
        """The model: what is open and what is settled, from the events alone."""
        amount = Amount(**{name: row[name] for name in Amount.model_fields})
        hold_seq = row["hold_seq"]
        if row["kind"] in ("hold", "override"):
            self.open[row["seq"]], self.run_of[row["seq"]] = amount, row["run_id"]
            self.owner_of[row["seq"]] = life
        elif row["kind"] == "extend":
            self.open[hold_seq] = added(self.open[hold_seq], amount)
            self.extended.add(hold_seq)
        elif row["kind"] in ("settle", "release"):
            del self.open[hold_seq]
            if row["kind"] == "settle":
                self.settled[row["run_id"]] = added(self.settled[row["run_id"]], amount)

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.open)))

    # -- what processes do --------------------------------------------------------------------------------------------

    @rule(n=who, fault=faults, again=st.booleans(), number=st.integers(0, 5))
    def submit(self, n: int, fault: Fault | None, again: bool, number: int) -> None:
        source = f"# {number if again else len(self.candidates) + 100}\n"

        def work(ledger: Ledger) -> None:
            ledger.register_candidate(
                self.runs[-1], Candidate(files={"candidate.py": source}), account=ACCOUNT, note="x"
            )

        self.attempt(n, fault, work, lambda rows: self.kinds(rows, [], ["note"]))
        found = self.watch.query("SELECT candidate_id FROM candidates WHERE run_id = ? ORDER BY number", self.runs[-1])
        self.candidates = [row["candidate_id"] for row in found]

    @precondition(lambda self: self.candidates)
    @rule(data=st.data(), n=who, fault=faults, rung=rungs, cpu_s=seconds, work_s=seconds, why=st.booleans())
    def admit(
        self, data: st.DataObject, n: int, fault: Fault | None, rung: Rung, cpu_s: float, work_s: float, why: bool
    ) -> None:
        self.ask(n, fault, data.draw(st.sampled_from(self.candidates)), rung, cpu_s, work_s, why)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), n=who, fault=faults, cpu_s=seconds, ratio=ratios, fails=st.booleans(), kept=st.booleans())
    def settle(
        self, data: st.DataObject, n: int, fault: Fault | None, cpu_s: float, ratio: float, fails: bool, kept: bool
    ) -> None:
        self.end(n, fault, self.pick(data), cpu_s, ratio, fails, kept)

    @precondition(lambda self: self.candidates)
    @rule(data=st.data(), n=who, fault=faults, later=faults, ratio=ratios, fails=st.booleans(), why=st.booleans())
    def call(
        self,
        data: st.DataObject,
        n: int,
        fault: Fault | None,
        later: Fault | None,
        ratio: float,
        fails: bool,
        why: bool,
    ) -> None:
        """What most calls are: a candidate's next rung, held and settled."""
        candidate_id = data.draw(st.sampled_from(self.candidates))
        tried = self.watch.query("SELECT DISTINCT rung FROM results WHERE candidate_id = ?", candidate_id)
        known = set(self.open)
        self.ask(n, fault, candidate_id, LADDER[min(len(tried), len(LADDER) - 1)], 1.0, 1.0, why)
        for hold_seq in set(self.open) - known:
            self.end(n, later, hold_seq, 0.75, ratio, fails, kept=True)

    def ask(
        self, n: int, fault: Fault | None, candidate_id: str, rung: Rung, cpu_s: float, work_s: float, why: bool
    ) -> None:
        left_s = self.watch.purse(self.runs[-1]).device_s_left
        cpu_s = 0.0 if rung is Rung.compile else cpu_s
        request = AdmitRequest(
            run_id=self.runs[-1], candidate_id=candidate_id, rung=rung,
            environment_id=(TARGET if rung is Rung.compile else ENVIRONMENT).environment_id,
            hold=Amount(calls=1, cpu_s=cpu_s, work_s=work_s), least=Amount(cpu_s=min(cpu_s, 0.5)),
            job_id=self._job(n), override_reason="a reason" if why else None, account=ACCOUNT,
        )  # fmt: skip

        def expect(rows: Rows) -> None:
            self.kinds(rows, ["hold"], ["override"], ["refuse"])
            if rows[0]["kind"] != "refuse":
                assert rows[0]["cpu_s"] <= min(left_s, cpu_s) + 1e-9

        self.attempt(n, fault, lambda ledger: ledger.admit(request), expect)

    def end(
        self, n: int, fault: Fault | None, hold_seq: int, cpu_s: float, ratio: float, fails: bool, kept: bool
    ) -> None:
        held, rung = self.open[hold_seq], Rung(self.rung_of(hold_seq))
        verdict = FAILS[rung] if fails else PASS[rung]
        measured = Amount(calls=1, cpu_s=0.0 if rung is Rung.compile else cpu_s, work_s=cpu_s)
        files = (ArtifactInput(name="log", data=str(cpu_s).encode()),) if kept else ()
        samples = sample_inputs(1) if rung in SCORED else ()
        result = result_input(rung, verdict, ratio)
        self.attempt(
            n, fault, lambda ledger: ledger.settle(hold_seq, measured, result, samples, files, {"load": 1.0}),
            lambda rows: self.charged(rows, measured, held),
        )  # fmt: skip

    @precondition(lambda self: self.open)
    @rule(data=st.data(), n=who, fault=faults, cpu_s=seconds)
    def cancel(self, data: st.DataObject, n: int, fault: Fault | None, cpu_s: float) -> None:
        hold_seq = self.pick(data)
        held, measured = self.open[hold_seq], Amount(calls=1, cpu_s=cpu_s, work_s=cpu_s)
        self.attempt(
            n, fault, lambda ledger: ledger.settle_unjudged(hold_seq, measured, "cancelled"),
            lambda rows: self.charged(rows, measured, held),
        )  # fmt: skip

    @precondition(lambda self: self.open)
    @rule(data=st.data(), n=who, fault=faults, house_s=st.sampled_from([0.0, 1.5]))
    def release(self, data: st.DataObject, n: int, fault: Fault | None, house_s: float) -> None:
        hold_seq = self.pick(data)
        self.clock.passed_s += house_s
        self.attempt(
            n, fault, lambda ledger: ledger.release(hold_seq, "fault_of_ours", house_s=house_s),
            lambda rows: self.kinds(rows, ["release", "overrun"] if house_s else ["release"]),
        )  # fmt: skip

    @precondition(lambda self: self.open)
    @rule(data=st.data(), n=who, fault=faults, cpu_s=seconds)
    def extend(self, data: st.DataObject, n: int, fault: Fault | None, cpu_s: float) -> None:
        hold_seq = self.pick(data)
        if hold_seq not in self.extended:
            self.attempt(
                n, fault, lambda ledger: ledger.extend(hold_seq, Amount(cpu_s=cpu_s)),
                lambda rows: self.kinds(rows, ["extend"], ["refuse"]),
            )  # fmt: skip

    @precondition(lambda self: self.open)
    @rule(data=st.data(), n=who, fault=faults, device_s=seconds)
    def beat(self, data: st.DataObject, n: int, fault: Fault | None, device_s: float) -> None:
        """A heartbeat changes no purse, and what it says of a hold counts once that is lost."""
        hold_seq = self.pick(data)
        (job,) = self.watch.query("SELECT job_id FROM events WHERE seq = ?", hold_seq)
        owner = Owner(pid=n + 1, start_s=float(self.lives[n]))
        used = InUse(job_id=job["job_id"], hold_seq=hold_seq, device_s=device_s)
        self.clock.passed_s += device_s
        self.attempt(n, fault, lambda ledger: ledger.heartbeat(owner, [used]), lambda rows: self.kinds(rows, []))

    @rule(n=who, fault=faults)
    def sweep(self, n: int, fault: Fault | None) -> None:
        """Holds of the dead are released, each once, whatever the sweep itself meets; those of the living stay."""
        living = {0, *self.lives}
        doomed = {seq for seq in self.open if self.owner_of[seq] not in living}

        def expect(rows: Rows) -> None:
            assert {row["kind"] for row in rows} <= {"release", "overrun"}
            assert {row["hold_seq"] for row in rows} <= doomed

        before = set(self.open)
        # Each job is a transaction of its own: a sweep that dies has released some, and the next one goes on.
        process = self.processes[n]
        head = self.watch.head()
        process.meet(fault)
        died = False
        with contextlib.suppress(LedgerError):
            try:
                process.ledger.sweep(lambda owner, quiet_s: int(owner.start_s) in living)
            except Died:
                died = True
        process.meet(None)
        rows = self.watch.query("SELECT * FROM events WHERE seq > ? ORDER BY seq", head.seq)
        expect(rows)
        for row in rows:
            self.fold(row, self.lives[n])
        if fault is None:
            assert set(self.open) == before - doomed
        if died:
            process.restart()
            self.lives[n] += 2

    @precondition(lambda self: len(self.runs) < MOST_RUNS)
    @rule(n=who, fault=faults)
    def next_run(self, n: int, fault: Fault | None) -> None:
        """The run is closed, with holds open or not, and another begins under a key that may be sent twice."""
        self.attempt(
            n,
            fault,
            lambda ledger: ledger.close_run(self.runs[-1], "done"),
            lambda rows: self.kinds(rows, [], ["close"]),
        )
        request = run_request(rule="halving", budget=BUDGET, idempotency_key=f"key {len(self.runs)}")
        self.attempt(n, fault, lambda ledger: ledger.start_run(TASK, request), lambda rows: self.kinds(rows, ["grant"]))
        run = self.processes[n].ledger.start_run(TASK, request)
        assert run.run_id == f"r{len(self.runs) + 1}", "the key makes one run, however often it is sent"
        self.runs.append(run.run_id)
        scenario = Scenario.__new__(Scenario)
        scenario.ledger, scenario.run, scenario.environment_id = self.watch, run, ENVIRONMENT.environment_id
        scenario._numbers = count()
        scenario.job_record = scenario.job(Owner(pid=KEEPER + 1, start_s=0.0))
        self.candidates = furnished(scenario)
        self.settled[run.run_id] = settled_by(self.watch, run.run_id)
        self._job(KEEPER)

    @rule(n=who, fault=faults)
    def expire(self, n: int, fault: Fault | None) -> None:
        """A clock that jumped a year ahead closes no run that has work in flight."""
        self.attempt(n, fault, lambda ledger: ledger.expire_runs(), lambda rows: self.kinds(rows, []))

    @rule(jump_s=st.sampled_from([-20 * YEAR_S, -3600.0, -0.001, 0.5, 86_401.0, 20 * YEAR_S]))
    def set_the_clock(self, jump_s: float) -> None:
        self.clock.offset_s = max(-20 * YEAR_S, min(20 * YEAR_S, self.clock.offset_s + jump_s))

    @rule(number=st.integers(0, 3), table=tables, sql=st.sampled_from(FORGERIES))
    def forge(self, number: int, table: str, sql: str) -> None:
        """Somebody with another SQLite client, without our constraints switched on, meets the triggers."""
        assert changed_by_forgery(self.path, sql, table, number) == []

    # -- what holds after each step -----------------------------------------------------------------------------------

    def kinds(self, rows: Rows, *allowed: list[str]) -> None:
        assert [row["kind"] for row in rows] in allowed

    def rung_of(self, hold_seq: int) -> str:
        return str(self.watch.query("SELECT rung FROM events WHERE seq = ?", hold_seq)[0]["rung"])

    def charged(self, rows: Rows, measured: Amount, held: Amount) -> None:
        """The smaller of measured and held is the run's, the rest the house's."""
        over_s = max(0.0, measured.cpu_s - held.cpu_s), max(0.0, measured.work_s - held.work_s)
        self.kinds(rows, ["settle", "overrun"] if any(round(s, 9) for s in over_s) else ["settle"])
        assert rows[0]["cpu_s"] == round(min(measured.cpu_s, held.cpu_s), 9)
        assert rows[0]["work_s"] == round(min(measured.work_s, held.work_s), 9)

    @invariant()
    def purses_are_what_the_events_add_up_to(self) -> None:
        for run_id in getattr(self, "runs", ()):
            purse = self.watch.purse(run_id)
            held = [amount for seq, amount in self.open.items() if self.run_of[seq] == run_id]
            assert abs(purse.open.device_s - sum(amount.cpu_s for amount in held)) < 1e-6
            assert abs(purse.settled.device_s - self.settled[run_id].cpu_s) < 1e-6
            assert abs(purse.settled.work_s - self.settled[run_id].work_s) < 1e-6
            assert purse.open.device_s + purse.settled.device_s <= BUDGET.device_s + 1e-6
            assert purse.open.work_s + purse.settled.work_s <= BUDGET.deadline_s + 1e-6
            assert min(purse.calls_left(rung) for rung in Rung) >= 0 <= purse.overrides_left
            assert self.watch.open_holds(run_id) == tuple(sorted(s for s in self.open if self.run_of[s] == run_id))

    @invariant()
    def the_audit_is_clean_and_knows_each_head_that_was_given_out(self) -> None:
        if hasattr(self, "heads"):
            report = audit(self.path, head=self.heads[len(self.heads) // 2])
            assert report.ok, report.findings
            assert report.head == self.watch.head()

    def teardown(self) -> None:
        if hasattr(self, "watch"):
            for process in self.processes:
                process.ledger.close()
            self.watch.close()
            shutil.rmtree(self.folder)


def furnished(book: Scenario) -> list[str]:
    """A few candidates of the run of today at different rungs, the first of them its incumbent."""
    return [
        book.climb(rung, f"# {book.run.run_id} {number}\n", ratio=2.0 - number / 4).candidate_id
        for number, rung in enumerate((Rung.precise, Rung.quick, Rung.quick, Rung.check, Rung.compile))
    ]


def settled_by(ledger: Ledger, run_id: str) -> Amount:
    settled = ledger.purse(run_id).settled
    return Amount(cpu_s=settled.device_s, work_s=settled.work_s)


def added(one: Amount, other: Amount) -> Amount:
    return Amount(**{name: getattr(one, name) + getattr(other, name) for name in Amount.model_fields})

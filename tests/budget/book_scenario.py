"""A small world for tests of the book: one task, one environment, and short ways up the ladder."""

from itertools import count
from pathlib import Path

from kernelgate.budget.audit import audit
from kernelgate.budget.clock import Clock
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Budget, Rung, Verdict
from kernelgate.budget.outcomes import AdmitRequest, Admitted, Refused, Settled
from kernelgate.budget.records import (
    CandidateRecord,
    Environment,
    JobRecord,
    JobRequest,
    Owner,
    ResultInput,
    RunRecord,
    RunRequest,
    SampleInput,
    Score,
)
from kernelgate.tasks.model import Candidate, Task, Workload, sha256_hex

TASK = Task(name="softmax", title="Row softmax", group="bundled", source="M = 4\n", workloads=(Workload(name="small"),))
ENVIRONMENT = Environment(facts={"cpu": "test", "torch": "2.13"})
TARGET = Environment(facts={"target": "sm_90"})
ACCOUNT = "local"
OWNER = Owner(pid=4242, start_s=1.5)
PASS = {
    Rung.compile: Verdict.built,
    Rung.check: Verdict.correct,
    Rung.quick: Verdict.maybe_faster,
    Rung.precise: Verdict.faster,
    Rung.profile: Verdict.diagnosed,
}
SCORED = (Rung.quick, Rung.precise)


def run_request(**changes: object) -> RunRequest:
    plain = {
        "account": ACCOUNT, "rule": "flat", "budget": Budget(device_s=100.0, deadline_s=1000.0), "device_kind": "cpu",
        "device_uid": "cpu", "environment": ENVIRONMENT, "arguments_sha256": sha256_hex("arguments"),
    }  # fmt: skip
    return RunRequest(**{**plain, **changes})


def result_input(rung: Rung, verdict: Verdict | None = None, ratio: float = 1.5, spread: float = 0.1) -> ResultInput:
    verdict = verdict or PASS[rung]
    timed = rung in SCORED and verdict.value in (
        "maybe_faster", "undecided", "clearly_slower", "faster", "same", "slower", "ambiguous",
    )  # fmt: skip
    score = Score(ratio=ratio, low=max(0.0, ratio - spread), high=ratio + spread) if timed else None
    return ResultInput(rung=rung, verdict=verdict, report={"summary": "x"}, score=score, workload_set="small")


def sample_inputs(n: int = 2) -> tuple[SampleInput, ...]:
    return tuple(
        SampleInput(workload="small", block_index=i, side=side, samples_us=(1.5, 2.25, 3.0), outside_us=(7.0,))
        for i in range(n)
        for side in ("baseline", "candidate")
    )


class Scenario:
    """A book with one open run."""

    def __init__(self, path: Path, clock: Clock | None = None, **run_changes: object) -> None:
        self.path = path
        self.ledger = Ledger.open(path, clock)
        self.ledger.record_environment(TARGET)
        self.run: RunRecord = self.ledger.start_run(TASK, run_request(**run_changes))
        self.environment_id = ENVIRONMENT.environment_id
        self._numbers = count()
        self.job_record: JobRecord = self.job()

    def job(self, owner: Owner = OWNER, run_id: str | None = None) -> JobRecord:
        request = JobRequest(
            run_id=run_id or self.run.run_id, account=ACCOUNT, tool="check_correctness",
            arguments={"n": next(self._numbers)}, owner=owner,
        )  # fmt: skip
        return self.ledger.open_job(request)[0]

    def candidate(
        self, source: str | None = None, parent_id: str | None = None, run_id: str | None = None
    ) -> CandidateRecord:
        text = source if source is not None else f"# {next(self._numbers)}\n"
        return self.ledger.register_candidate(
            run_id or self.run.run_id, Candidate(files={"candidate.py": text}), account=ACCOUNT, parent_id=parent_id
        )[0]

    def request(
        self,
        candidate: CandidateRecord,
        rung: Rung,
        cpu_s: float = 1.0,
        *,
        work_s: float = 1.0,
        least: Amount | None = None,
        override_reason: str | None = None,
        job_id: str | None = None,
        environment_id: str | None = None,
    ) -> AdmitRequest:
        here = TARGET.environment_id if rung is Rung.compile else self.environment_id
        return AdmitRequest(
            run_id=candidate.run_id,
            candidate_id=candidate.candidate_id,
            rung=rung,
            environment_id=environment_id or here,
            hold=Amount(calls=1, cpu_s=0.0 if rung is Rung.compile else cpu_s, work_s=work_s),
            least=least or Amount(),
            job_id=job_id or self.job_record.job_id,
            override_reason=override_reason,
            account=ACCOUNT,
        )

    def hold(self, candidate: CandidateRecord, rung: Rung, cpu_s: float = 1.0, **more: object) -> Admitted:
        answer = self.ledger.admit(self.request(candidate, rung, cpu_s, **more))
        assert isinstance(answer, Admitted), answer
        return answer

    def refused(self, candidate: CandidateRecord, rung: Rung, cpu_s: float = 1.0, **more: object) -> Refused:
        answer = self.ledger.admit(self.request(candidate, rung, cpu_s, **more))
        assert isinstance(answer, Refused), answer
        return answer

    def measure(
        self,
        candidate: CandidateRecord,
        rung: Rung,
        verdict: Verdict | None = None,
        *,
        ratio: float = 1.5,
        spread: float = 0.1,
        cpu_s: float = 0.5,
        override_reason: str | None = None,
        environment_id: str | None = None,
    ) -> Settled:
        hold = self.hold(candidate, rung, override_reason=override_reason, environment_id=environment_id)
        measured = Amount(calls=1, cpu_s=0.0 if rung is Rung.compile else cpu_s, work_s=cpu_s)
        samples = sample_inputs() if rung in SCORED else ()
        return self.ledger.settle(hold.hold_seq, measured, result_input(rung, verdict, ratio, spread), samples)

    def climb(
        self, to: Rung, source: str | None = None, *, ratio: float = 1.5, spread: float = 0.1,
        verdict: Verdict | None = None,
    ) -> CandidateRecord:  # fmt: skip
        """A new candidate, passed up to a rung; `verdict` and `ratio` are of the last one."""
        candidate = self.candidate(source)
        for rung in (Rung.compile, Rung.check, Rung.quick, Rung.precise):
            self.measure(candidate, rung, verdict if rung is to else None, ratio=ratio, spread=spread)
            if rung is to:
                break
        return candidate


def purse_adds_up(book: Scenario) -> bool:
    report = audit(book.path)
    assert report.ok, report.findings
    return report.head == book.ledger.head()

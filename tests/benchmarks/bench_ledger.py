"""What the book costs: admit + settle on a long ledger, alone and among eight processes, and an audit of it.

`python tests/benchmarks/bench_ledger.py [EVENTS]` prints the figures as JSON. A worker of the eight is this file
started with `--worker`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "budget"))

from book_scenario import ACCOUNT, ENVIRONMENT, TASK, Scenario, result_input, run_request, sample_inputs  # noqa: E402 -- after the line that makes the scenario importable

from kernelgate.budget.audit import audit  # noqa: E402 -- after the line that makes the scenario importable
from kernelgate.budget.ledger import Ledger  # noqa: E402 -- after the line that makes the scenario importable
from kernelgate.budget.model import LADDER, Amount, Budget, Rung  # noqa: E402 -- after the line that makes the scenario importable
from kernelgate.budget.outcomes import AdmitRequest, Admitted  # noqa: E402 -- after the line that makes the scenario importable
from kernelgate.budget.records import JobRequest, Owner  # noqa: E402 -- after the line that makes the scenario importable
from kernelgate.tasks.model import Candidate  # noqa: E402 -- after the line that makes the scenario importable

EVENTS = 100_000
PROCESSES = 8
PAIRS_ALONE = 300
PAIRS_EACH = 100
RICH = Budget(
    compile_calls=1_000_000, check_calls=1_000_000, quick_calls=1_000_000, precise_calls=1_000_000, device_s=1e7,
    deadline_s=1e7,
)  # fmt: skip
BLOCKS = {Rung.quick: 2, Rung.precise: 12}
"""Timed blocks, each of a baseline and a candidate."""
RUN_LENGTH = 1_000
"""Events per run while filling: about what a long session of an agent leaves."""


def admit_and_settle(ledger: Ledger, run_id: str, candidate_id: str, job_id: str) -> float:
    """One spend; returns its milliseconds."""
    began_s = time.perf_counter()
    held = ledger.admit(AdmitRequest(
        run_id=run_id, candidate_id=candidate_id, rung=Rung.compile, environment_id=ENVIRONMENT.environment_id,
        hold=Amount(calls=1, cpu_s=0.1, work_s=0.1), job_id=job_id, account=ACCOUNT,
    ))  # fmt: skip
    assert isinstance(held, Admitted)
    ledger.settle(held.hold_seq, Amount(calls=1, cpu_s=0.05, work_s=0.05), result_input(Rung.compile))
    return (time.perf_counter() - began_s) * 1e3


def open_run(ledger: Ledger, number: int) -> tuple[str, str, str]:
    """A rich run with one candidate and one job; returns their ids."""
    run = ledger.start_run(TASK, run_request(budget=RICH, rule="halving"))
    source = Candidate(files={"candidate.py": f"# {number}\n"})
    candidate, _ = ledger.register_candidate(run.run_id, source, account=ACCOUNT)
    job, _ = ledger.open_job(JobRequest(
        run_id=run.run_id, account=ACCOUNT, tool="compile", arguments={}, owner=Owner(pid=os.getpid(), start_s=0.0)
    ))  # fmt: skip
    return run.run_id, candidate.candidate_id, job.job_id


def climb(ledger: Ledger, ids: tuple[str, str, str], n: int) -> None:
    """What an agent leaves per candidate: its source, three rungs, and the door of the fourth, open to one in three."""
    run_id, _, job_id = ids
    source = Candidate(files={"candidate.py": f"# {n}\n" + "x = 1  # a kernel has about so much text\n" * 60})
    candidate, _ = ledger.register_candidate(run_id, source, account=ACCOUNT)
    for rung in LADDER:
        held = ledger.admit(AdmitRequest(
            run_id=run_id, candidate_id=candidate.candidate_id, rung=rung, environment_id=ENVIRONMENT.environment_id,
            hold=Amount(calls=1, cpu_s=0.1, work_s=0.1), job_id=job_id, account=ACCOUNT,
        ))  # fmt: skip
        if isinstance(held, Admitted):
            samples = sample_inputs(BLOCKS[rung]) if rung in BLOCKS else ()
            result = result_input(rung, ratio=1 + n % 97 / 100)
            ledger.settle(held.hold_seq, Amount(calls=1, cpu_s=0.05, work_s=0.05), result, samples)


def fill_with_spends(ledger: Ledger, events: int) -> None:
    """Bring a book to so many events, holds and settlements alone; one commit per run: reading is measured later."""
    while ledger.head().seq < events:
        with ledger.transaction():
            ids = open_run(ledger, ledger.head().seq)
            for _ in range(RUN_LENGTH // 2):
                admit_and_settle(ledger, *ids)


def fill_with_climbs(ledger: Ledger, events: int) -> int:
    """The same as agents leave it, with samples, refusals and decisions; returns the number of candidates."""
    n = 0
    while ledger.head().seq < events:
        with ledger.transaction():
            ids = open_run(ledger, n)
            full = ledger.head().seq + RUN_LENGTH
            while ledger.head().seq < full:
                climb(ledger, ids, n)
                n += 1
    return n


def worker(path: str) -> None:
    """Spend when told to; print the milliseconds of each."""
    with Ledger.open(path) as ledger:
        ids = open_run(ledger, os.getpid())
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        sys.stdout.write(json.dumps([admit_and_settle(ledger, *ids) for _ in range(PAIRS_EACH)]))


def eight_at_once(path: Path) -> list[float]:
    """Milliseconds of all spends of eight processes that start together."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE), "--worker", str(path)],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found: list[float] = []
    for process in processes:
        out, _ = process.communicate(timeout=300)
        found.extend(json.loads(out))
    return found


def percentile(values: list[float], share: float) -> float:
    """The value below which so large a share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def figures(events: int = EVENTS, folder: str | None = None) -> dict[str, float]:
    """Measure; keys are the figures' names with their units."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch, "book.db")
        Scenario(path).ledger.close()
        with Ledger.open(path) as ledger:
            fill_with_spends(ledger, events)
            ids = open_run(ledger, 0)
            alone = [admit_and_settle(ledger, *ids) for _ in range(PAIRS_ALONE)]
        together = eight_at_once(path)
        began_s = time.perf_counter()
        report = audit(path)
        audit_s = time.perf_counter() - began_s
        assert report.ok, report.findings
        return {
            "events": float(report.counts["events"]),
            "ledger_mb": path.stat().st_size / 1e6,
            "admit_settle_ms_median": statistics.median(alone),
            "admit_settle_ms_p99": percentile(alone, 0.99),
            "admit_settle_ms_median_8proc": statistics.median(together),
            "admit_settle_ms_p99_8proc": percentile(together, 0.99),
            "audit_s": audit_s,
            "audit_us_per_event": audit_s / report.counts["events"] * 1e6,
        }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        found = figures(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS)
        sys.stdout.write(json.dumps({name: round(value, 4) for name, value in found.items()}, indent=2) + "\n")

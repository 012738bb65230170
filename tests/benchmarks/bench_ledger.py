"""What a spend costs: admit + settle on a long ledger, alone and among eight processes.

`python tests/benchmarks/bench_ledger.py [EVENTS]` prints the figures as JSON. A worker of the eight is this file
started with `--worker`.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "budget"))

from book_scenario import ACCOUNT, ENVIRONMENT, TASK, Scenario, result_input, run_request  # noqa: E402 -- after the line that makes the scenario importable

from kernelgate.budget.ledger import Ledger  # noqa: E402 -- after the line that makes the scenario importable
from kernelgate.budget.model import Amount, Budget, Rung  # noqa: E402 -- after the line that makes the scenario importable
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
THINK_S = 0.1
"""Mean pause of a busy server between two spends: even free rungs take a tenth of a second."""
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


def fill_with_spends(ledger: Ledger, events: int) -> None:
    """Bring a book to so many events, holds and settlements alone; one commit per run: reading is measured later."""
    while ledger.head().seq < events:
        with ledger.transaction():
            ids = open_run(ledger, ledger.head().seq)
            for _ in range(RUN_LENGTH // 2):
                admit_and_settle(ledger, *ids)


def worker(path: str, think_s: float) -> None:
    """Spend when told to; print the milliseconds of each, and of the processor for each."""
    chance = random.Random(os.getpid())
    with Ledger.open(path) as ledger:
        ids = open_run(ledger, os.getpid())
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        found_ms: list[float] = []
        began_s = time.process_time()
        for _ in range(PAIRS_EACH):
            if think_s:
                time.sleep(chance.expovariate(1 / think_s))
            found_ms.append(admit_and_settle(ledger, *ids))
        cpu_ms = (time.process_time() - began_s) * 1e3 / PAIRS_EACH
        sys.stdout.write(json.dumps([found_ms, cpu_ms]))


def eight_at_once(path: Path, think_s: float = 0.0) -> tuple[list[float], float]:
    """Milliseconds of all spends of eight processes that start together, and the mean of the processor's for each.

    Args:
        path: of the book.
        think_s: mean of the exponential pause before each spend; 0: as fast as they can.
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE), "--worker", str(path), str(think_s)],
            env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(PROCESSES)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    return [one_ms for found_ms, _ in said for one_ms in found_ms], statistics.mean(cpu_ms for _, cpu_ms in said)


def sync_ms(folder: str | None) -> list[float]:
    """What one sync of 32 KiB costs on this disk, which no settlement can undercut."""
    found: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(PAIRS_ALONE):
            file.seek(0)
            file.write(b"x" * 32768)
            file.flush()
            began_s = time.perf_counter()
            os.fdatasync(file.fileno())
            found.append((time.perf_counter() - began_s) * 1e3)
    return found


def percentile(values: list[float], share: float) -> float:
    """The value below which so large a share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def figures(events: int = EVENTS, folder: str | None = None) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Measure; the figures by their names with units, and the readings."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch, "book.db")
        Scenario(path).ledger.close()
        with Ledger.open(path) as ledger:
            fill_with_spends(ledger, events)
            ids = open_run(ledger, 0)
            began_s = time.process_time()
            alone = [admit_and_settle(ledger, *ids) for _ in range(PAIRS_ALONE)]
            cpu_ms = (time.process_time() - began_s) * 1e3 / PAIRS_ALONE
            together, together_cpu_ms = eight_at_once(path)
            thinking, _ = eight_at_once(path, THINK_S)
        disk = sync_ms(folder)
    found = {
        "ledger_events": float(events),
        "admit_settle_ms_median": statistics.median(alone),
        "admit_settle_ms_p99": percentile(alone, 0.99),
        "admit_settle_cpu_ms_mean": cpu_ms,
        "admit_settle_ms_median_8proc": statistics.median(together),
        "admit_settle_ms_p99_8proc": percentile(together, 0.99),
        "admit_settle_cpu_ms_mean_8proc": together_cpu_ms,
        "admit_settle_ms_median_8proc_thinking": statistics.median(thinking),
        "admit_settle_ms_p99_8proc_thinking": percentile(thinking, 0.99),
        "disk_sync_ms_median": statistics.median(disk),
        "disk_sync_ms_p99": percentile(disk, 0.99),
    }
    raw = {"alone_ms": alone, "together_ms": together, "thinking_ms": thinking, "disk_sync_ms": disk}
    return found, {name: [round(value, 4) for value in values] for name, values in raw.items()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], float(sys.argv[3]))
    else:
        found, _ = figures(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS)
        sys.stdout.write(json.dumps({name: round(value, 4) for name, value in found.items()}, indent=2) + "\n")

"""Writers that are killed with SIGKILL anywhere, 200 times. Run as a script: PATH KILLS SEED.

The interpreter imports the book once, without opening it; each writer is a fork of it with a connection of its own,
so that a kill costs milliseconds. After each kill the book is opened again and swept; what a writer had been told
(acknowledged through a pipe) must be in the book.
"""

import json
import os
import random
import select
import signal
import sys
import time
from itertools import count

from book_scenario import ACCOUNT, ENVIRONMENT, TARGET, TASK, result_input, run_request, sample_inputs

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Budget, Rung
from kernelgate.budget.outcomes import AdmitRequest, Admitted
from kernelgate.budget.records import JobRequest, Owner
from kernelgate.tasks.model import Candidate

MOST_ACKNOWLEDGED = 3
"""A writer is killed a random while after so many answers at most, however slow the host is."""
LONGEST_WHILE_S = 0.012
PATIENCE_S = 5.0
AUDIT_EACH = 25


def write_until_killed(path: str, run_id: str, acknowledge: int, seed: int) -> None:
    """Climb, extend, settle, release, refuse, for ever; each answer is acknowledged."""
    chance = random.Random(seed)
    with Ledger.open(path) as ledger:
        job, _ = ledger.open_job(JobRequest(
            run_id=run_id, account=ACCOUNT, tool="compile", arguments={"seed": seed},
            owner=Owner(pid=os.getpid(), start_s=float(seed)),
        ))  # fmt: skip
        for n in count():
            candidate, _ = ledger.register_candidate(
                run_id, Candidate(files={"candidate.py": f"# {seed} {n}\n"}), account=ACCOUNT
            )
            for rung in (Rung.compile, Rung.check, Rung.quick):
                where = TARGET if rung is Rung.compile else ENVIRONMENT
                answer = ledger.admit(AdmitRequest(
                    run_id=run_id, candidate_id=candidate.candidate_id, rung=rung,
                    environment_id=where.environment_id, hold=Amount(calls=1, cpu_s=chance.uniform(0.1, 9.0)),
                    job_id=job.job_id, account=ACCOUNT,
                ))  # fmt: skip
                if not isinstance(answer, Admitted):
                    os.write(acknowledge, b"refuse %d\n" % answer.seq)
                    break
                os.write(acknowledge, b"hold %d\n" % answer.hold_seq)
                if chance.random() < 0.2:
                    ledger.extend(answer.hold_seq, Amount(cpu_s=1.0))
                if chance.random() < 0.2:
                    released = ledger.release(answer.hold_seq, "fault_of_ours")
                    os.write(acknowledge, b"release %d\n" % released.head.seq)
                    break
                measured = Amount(calls=1, cpu_s=chance.uniform(0.0, 5.0))
                settled = ledger.settle(answer.hold_seq, measured, result_input(rung), sample_inputs(1))
                os.write(acknowledge, b"result %d\n" % settled.result_id)


def kill_one(path: str, run_id: str, chance: random.Random, seed: int) -> list[str]:
    """Start a writer, kill it after a random while, and return what it acknowledged."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            write_until_killed(path, run_id, writing, seed)
        finally:
            os._exit(9)
    os.close(writing)
    said = read_lines(reading, chance.randint(0, MOST_ACKNOWLEDGED))
    signal.sigtimedwait([signal.SIGCHLD], chance.uniform(0.0, LONGEST_WHILE_S))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise RuntimeError(f"writer {seed} ended by itself")
    with os.fdopen(reading, "rb") as stream:
        return (said + stream.read()).decode().splitlines()


def read_lines(reading: int, n: int) -> bytes:
    """Wait for so many lines, or for as long as is patient."""
    said, give_up_s = b"", time.monotonic() + PATIENCE_S
    while said.count(b"\n") < n and select.select([reading], [], [], max(0.0, give_up_s - time.monotonic()))[0]:
        piece = os.read(reading, 4096)
        if not piece:
            break
        said += piece
    return said


def check_acknowledged(ledger: Ledger, lines: list[str]) -> None:
    for line in lines:
        what, number = line.split()
        table, key = ("results", "result_id") if what == "result" else ("events", "seq")
        rows = ledger.query(f"SELECT * FROM {table} WHERE {key} = ?", int(number))
        if len(rows) != 1 or (what != "result" and rows[0]["kind"] != what):
            raise RuntimeError(f"acknowledged, but not in the book: {line}")


def main(path: str, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    budget = Budget(compile_calls=100_000, check_calls=100_000, quick_calls=100_000, device_s=1000.0)
    with Ledger.open(path) as ledger:
        ledger.record_environment(TARGET)
        run_id = ledger.start_run(TASK, run_request(budget=budget)).run_id
    acknowledged = 0
    for n in range(kills):
        lines = kill_one(path, run_id, chance, n)
        acknowledged += len(lines)
        with Ledger.open(path) as ledger:
            ledger.sweep(lambda owner, quiet_s: False)
            if ledger.open_holds(run_id):
                raise RuntimeError(f"open holds after sweep {n}")
            check_acknowledged(ledger, lines)
        if n % AUDIT_EACH == AUDIT_EACH - 1:
            report = audit(path)
            if not report.ok:
                raise RuntimeError(f"after kill {n}: {report.findings}")
    report = audit(path)
    sys.stdout.write(json.dumps({"ok": report.ok, "acknowledged": acknowledged, **report.counts}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

"""Writes `books/schema_N.db.gz`: a small ledger of the schema of today, for later versions to prove that they open it.

Run it once for each version of the schema, before the next step is added: FILE.
"""

import gzip
import sqlite3
import sys
import tempfile
from pathlib import Path

from book_scenario import ACCOUNT, ENVIRONMENT, OWNER, TASK, Scenario, result_input, run_request

from kernelgate.budget.model import Amount, Budget, Rung, Verdict
from kernelgate.budget.records import InUse, Owner

REASON = "it should win on large rows"


def live(book: Scenario) -> None:
    """A little of everything: a promotion against the rule, refusals, an extension, overruns, a replay, a closing."""
    winner = book.climb(Rung.precise, "# the winner\n", ratio=2.0)
    slow = book.climb(Rung.quick, verdict=Verdict.clearly_slower, ratio=0.8)
    book.refused(slow, Rung.precise)
    book.measure(slow, Rung.precise, Verdict.slower, ratio=0.9, override_reason=REASON)
    wrong = book.climb(Rung.check, verdict=Verdict.wrong_values)
    book.refused(wrong, Rung.quick)
    held = book.hold(book.climb(Rung.compile), Rung.check, 1.0)
    book.ledger.extend(held.hold_seq, Amount(cpu_s=0.5))
    book.ledger.settle(held.hold_seq, Amount(calls=1, cpu_s=2.0), result_input(Rung.check), observation={"load": 0.5})
    cancelled = book.hold(book.climb(Rung.compile), Rung.check, 1.0)
    book.ledger.settle_unjudged(cancelled.hold_seq, Amount(calls=1, cpu_s=0.25), "cancelled")
    released = book.hold(winner, Rung.check, 1.0)
    book.ledger.release(released.hold_seq, "fault_of_ours", "the referee died", house_s=0.125)
    gone = Owner(pid=4243, start_s=2.0, place="elsewhere")
    lost = book.hold(winner, Rung.check, 1.0, job_id=book.job(gone).job_id)
    book.ledger.heartbeat(gone, [InUse(job_id="j2", hold_seq=lost.hold_seq, device_s=0.25)])
    book.ledger.sweep(lambda owner, quiet_s: owner == OWNER)
    book.ledger.record_calibration(ENVIRONMENT, "noise_floor", {"floor": 0.01}, paid=Amount(cpu_s=1.0))
    book.run = book.ledger.start_run(TASK, run_request(budget=Budget(device_s=10.0)))
    again = book.candidate("# the winner\n", run_id="r2")
    book.ledger.record_replay(account=ACCOUNT, run_id="r2", candidate_id=again.candidate_id, source_result_id=1)
    book.ledger.close_run("r2", "closed by the user")
    book.hold(winner, Rung.profile, 1.0)


def main(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, packed = Path(folder, "book.db"), Path(folder, "packed.db")
        book = Scenario(path, rule="halving", budget=Budget(device_s=100.0, deadline_s=1000.0))
        live(book)
        book.ledger.close()
        source = sqlite3.connect(path)
        source.execute("VACUUM INTO ?", (str(packed),))
        source.close()
        file.write_bytes(gzip.compress(packed.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

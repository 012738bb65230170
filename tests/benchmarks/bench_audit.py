"""What an audit costs: a million holds and settlements, and a shorter book as agents leave it. And how a book grows.

`python tests/benchmarks/bench_audit.py [EVENTS]` prints the figures as JSON.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_ledger import ENVIRONMENT, RUN_LENGTH, fill_with_spends, open_run
from book_scenario import ACCOUNT, Scenario, result_input, sample_inputs

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import LADDER, Amount, Rung
from kernelgate.budget.outcomes import AdmitRequest, Admitted
from kernelgate.tasks.model import Candidate

EVENTS = 1_000_000
MIXED_EVENTS = 60_000
"""Enough for the second process of an audit."""
BLOCKS = {Rung.quick: 2, Rung.precise: 12}
"""Timed blocks, each of a baseline and a candidate."""
AUDIT = """
import json, resource, sys, time
from kernelgate.budget.audit import audit
if __name__ == "__main__":
    began_s = time.perf_counter()
    report = audit(sys.argv[1])
    took_s = time.perf_counter() - began_s
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({
        "ok": report.ok, "events": report.counts["events"], "s": took_s,
        "rss_mb": sum(each.ru_maxrss for each in usage) / 1e3,
        "cpu_s": sum(each.ru_utime + each.ru_stime for each in usage),
    }))
"""


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


def audited(book: Path, scratch: Path) -> dict[str, float]:
    """Seconds, memory (of both processes) and processor seconds of an audit in a fresh interpreter."""
    script = scratch / "audit_it.py"
    script.write_text(AUDIT, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script), str(book)], capture_output=True, text=True, check=True)
    said: dict[str, float] = json.loads(done.stdout)
    assert said["ok"]
    return said


def figures(events: int = EVENTS, folder: str | None = None) -> dict[str, float]:
    """Measure; keys are the figures' names with their units."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        long, mixed = scratch / "long.db", scratch / "mixed.db"
        for book in (long, mixed):
            Scenario(book).ledger.close()
        with Ledger.open(mixed) as ledger:
            empty_bytes = mixed.stat().st_size
            candidates = fill_with_climbs(ledger, MIXED_EVENTS)
        of_mixed = audited(mixed, scratch)
        grown_bytes = mixed.stat().st_size - empty_bytes
        with Ledger.open(long) as ledger:
            fill_with_spends(ledger, events)
        of_long = audited(long, scratch)
        return {
            "audit_1m_events_s": of_long["s"] * 1e6 / of_long["events"],
            "audit_1m_events_cpu_s": of_long["cpu_s"] * 1e6 / of_long["events"],
            "audit_1m_events_rss_mb": of_long["rss_mb"],
            "audit_events": of_long["events"],
            "ledger_1m_events_mb": long.stat().st_size / of_long["events"],
            "audit_mixed_us_per_event": of_mixed["s"] * 1e6 / of_mixed["events"],
            "ledger_bytes_per_candidate": grown_bytes / candidates,
        }


if __name__ == "__main__":
    found = figures(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS)
    sys.stdout.write(json.dumps({name: round(value, 4) for name, value in found.items()}, indent=2) + "\n")

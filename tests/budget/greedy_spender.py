"""One of several processes on one book: opens it, joins the run, and holds until it is refused. Run as a script."""

import json
import sys

from book_scenario import ACCOUNT, ENVIRONMENT, TARGET, TASK, run_request

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Budget, Rung
from kernelgate.budget.outcomes import AdmitRequest, Admitted
from kernelgate.budget.records import JobRequest, Owner
from kernelgate.tasks.model import Candidate


def main(path: str, number: int) -> None:
    with Ledger.open(path) as ledger:
        ledger.record_environment(TARGET)
        budget = Budget(device_s=1000.0, compile_calls=100)
        run = ledger.start_run(TASK, run_request(budget=budget, idempotency_key="shared"))
        candidate, _ = ledger.register_candidate(
            run.run_id, Candidate(files={"candidate.py": "same = 1\n"}), account=ACCOUNT
        )
        job, _ = ledger.open_job(JobRequest(
            run_id=run.run_id, account=ACCOUNT, tool="compile", arguments={"n": number},
            owner=Owner(pid=number + 1, start_s=0.0),
        ))  # fmt: skip
        holds = []
        while True:
            answer = ledger.admit(AdmitRequest(
                run_id=run.run_id, candidate_id=candidate.candidate_id, rung=Rung.compile,
                environment_id=ENVIRONMENT.environment_id, hold=Amount(calls=1, cpu_s=1.0), job_id=job.job_id,
                account=ACCOUNT,
            ))  # fmt: skip
            if not isinstance(answer, Admitted):
                break
            holds.append(answer.hold_seq)
    sys.stdout.write(json.dumps({"run": run.run_id, "candidate": candidate.candidate_id, "holds": holds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

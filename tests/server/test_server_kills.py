"""A whole server is killed anywhere, again and again; the next one goes on with the run, and the book holds."""

import random
import select
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_stdio import SOFTMAX, answer, ask, call, greet, started

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger

SEED = 11
LONGEST_WHILE_S = 1.5
"""About what a climb to `quick_time` takes once the worker stands: kills fall before, within and behind the rungs."""


def go_on(server: subprocess.Popen[bytes], run_id: str | None) -> dict[str, Any]:
    """Open the run, or go on with it; the structured reply."""
    greet(server)
    return call(server, 1, "start_run", task="softmax", **({} if run_id is None else {"resume": run_id}))


def work_until_killed(server: subprocess.Popen[bytes], run_id: str, n: int, chance: random.Random) -> None:
    """Ask for a climb, wait for its end or for a random while, and kill."""
    source = SOFTMAX.format(body=f"torch.softmax(x, dim=-1)  # {n}")
    ask(server, 2, "tools/call", name="compile", arguments={"run_id": run_id, "source": source, "up_to": "quick_time"})
    select.select([server.stdout], [], [], chance.uniform(0.0, LONGEST_WHILE_S))
    server.kill()
    server.wait(timeout=10)


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_run_goes_on_from_server_to_server_however_they_end(tmp_path: Path, kills: int) -> None:
    book, chance = tmp_path / "ledger.db", random.Random(SEED)
    run_id, lost = None, 0
    for n in range(kills):
        with started(tmp_path) as server:
            reply = go_on(server, run_id)
            run_id = reply["run"]["run_id"]
            lost += "lost with their server" in reply["summary"]
            with Ledger.open(book) as ledger:
                assert ledger.open_holds(run_id) == (), "what a killed server held is free for the next one at once"
                assert ledger.jobs(run_id, active_only=True) == ()
            work_until_killed(server, run_id, n, chance)
        report = audit(book)
        assert report.ok, report.findings
    assert lost > 0, "no server was killed at work"


def test_only_an_open_run_of_the_task_is_gone_on_with_and_keeps_what_it_has(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        run_id = go_on(server, None)["run"]["run_id"]
        again = call(server, 2, "start_run", task="softmax", resume=run_id)
        assert again["run"]["run_id"] == run_id
        assert again["summary"].startswith(f"{run_id} on softmax goes on: 120.0 cpu_s and 20 precise timings are left.")
        for number, (wrong, said) in enumerate(
            [
                ({"task": "softmax", "resume": "r9"}, "unknown run 'r9'"),
                ({"task": "rmsnorm", "resume": run_id}, f"{run_id} is a run of task softmax, not of rmsnorm"),
                ({"task": "softmax", "resume": run_id, "device_s": 5.0}, "resume goes with task alone"),
            ],
            start=3,
        ):
            ask(server, number, "tools/call", name="start_run", arguments=wrong)
            assert said in refusal(server)
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            ledger.close_run(run_id, "enough")
        ask(server, 9, "tools/call", name="start_run", arguments={"task": "softmax", "resume": run_id})
        assert f"{run_id} is closed (enough); open a new run, without resume" in refusal(server)


def refusal(server: subprocess.Popen[bytes]) -> str:
    result = answer(server)["result"]
    assert result["isError"]
    return str(result["content"][0]["text"])

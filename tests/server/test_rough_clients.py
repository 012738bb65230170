"""Clients that are gone from one moment to the next leave nothing behind: no process, and with it no lease; no hold."""

import os
import random
import select
import subprocess
from pathlib import Path

import pytest
from test_server_kills import LONGEST_WHILE_S, go_on
from test_stdio import SOFTMAX, ask, started

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.tools.worker import processes

SEED = 23
GONE_S = 10.0


def vanish(server: subprocess.Popen[bytes]) -> None:
    """What the kernel does to the pipes of a client that is killed."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()
    server.stdout.close()


@pytest.mark.parametrize("exits", [4, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_after_rough_exits_of_clients_no_process_and_no_hold_is_left(tmp_path: Path, exits: int) -> None:
    chance, run_id, left = random.Random(SEED), None, list[int]()
    for n in range(exits):
        with started(tmp_path) as server:
            run_id = go_on(server, run_id)["run"]["run_id"]
            source = SOFTMAX.format(body=f"torch.softmax(x, dim=-1)  # {n}")
            arguments = {"run_id": run_id, "source": source, "up_to": "quick_time"}
            ask(server, 2, "tools/call", name="compile", arguments=arguments)
            select.select([server.stdout], [], [], chance.uniform(0.0, LONGEST_WHILE_S))
            left += [os.pidfd_open(pid) for pid in processes.descendants(server.pid)]
            vanish(server)
            assert server.wait(timeout=GONE_S) == 0
    assert left, "no server was at work"
    for descriptor in left:
        assert select.select([descriptor], [], [], GONE_S)[0], "a process of a server is left"
        os.close(descriptor)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.open_holds(str(run_id)) == ()
    report = audit(tmp_path / "ledger.db")
    assert report.ok, report.findings

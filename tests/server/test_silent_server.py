"""A job whose server lives and does nothing: who waits for it is told what to do."""

import os
from contextlib import closing
from pathlib import Path

import pytest
from mcp import Client
from test_own_kernel import runner

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import LOCAL
from kernelgate.budget.records import JobRequest, Owner
from kernelgate.server.app import build
from kernelgate.server.owner import start_time_s, this_place
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings


@pytest.mark.anyio
async def test_a_job_of_a_silent_server_says_since_when_and_how_to_go_on(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, device="cpu")
    parent = os.getppid()
    owner = Owner(pid=parent, start_s=start_time_s(parent) or 0.0, place=this_place())
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner()}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        with closing(Ledger.open(settings.ledger)) as ledger:
            ledger.open_job(JobRequest(run_id="r1", account=LOCAL, tool="compile", arguments={}, owner=owner))
        fresh = (await client.call_tool("job", {"job_id": "j1", "wait_s": 0})).structured_content["summary"]
        with closing(Ledger.open(settings.ledger)) as ledger, ledger.transaction() as connection:
            connection.execute("UPDATE jobs SET heartbeat_utc = datetime('now', '-100 seconds') || '+00:00'")
        silent = (await client.call_tool("job", {"job_id": "j1", "wait_s": 0})).structured_content["summary"]
        stopped = await client.call_tool("job", {"job_id": "j1", "action": "cancel", "wait_s": 0})
    assert fresh.endswith("call job again")
    what_to_do = "end that process: the job is lost then, and asking again starts it anew"
    assert f"its server, process {parent}, has given no sign of life for 10" in silent
    assert silent.endswith(what_to_do)
    assert f"end its process {parent}: the job is lost then" in stopped.content[0].text

"""Several servers over one folder, over HTTP and stdio: one book, one purse, and work that is only its server's."""

from pathlib import Path

import anyio
import pytest
from http_server import call, client_of, serving
from live_server import forward
from mcp import Client, StdioServerParameters
from test_http import FUSED, SLOW
from test_stdio import command

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.tokens import Tokens

pytestmark = pytest.mark.anyio

UNHURRIED = forward("import time\ntime.sleep(0.05)\nreturn torch.softmax(x, dim=-1)")
"""Long enough under way to be asked after, and soon at its end."""


async def test_two_http_servers_share_runs_and_book_and_each_has_its_own_work(tmp_path: Path) -> None:
    with serving(tmp_path) as one, serving(tmp_path) as other:
        secrets = [Tokens(tmp_path).add("alice", server.url)[1] for server in (one, other)]
        async with client_of(one.url, secrets[0]) as here, client_of(other.url, secrets[1]) as there:
            run_id = (await call(here, "start_run", task="softmax"))["run"]["run_id"]
            begun = await call(here, "compile", run_id=run_id, source=UNHURRIED, up_to="quick_time", wait_s=0)
            refused = await call(there, "job", job_id=begun["job_id"], action="cancel")
            assert "runs in another server process" in refused["error"]
            ended = (await call(there, "job", job_id=begun["job_id"], wait_s=60))["job"]
            assert ended["reply"] == (await call(here, "job", job_id=begun["job_id"]))["job"]["reply"]
            again = await call(there, "compile", run_id=run_id, source=UNHURRIED, up_to="quick_time")
            assert all(step["replayed"] for step in again["climbed"])
            assert "unknown run" in (await call_as_nobody(other.url, run_id))["error"]
    report = audit(tmp_path / "ledger.db")
    assert report.ok, report.findings


async def call_as_nobody(url: str, run_id: str) -> dict[str, object]:
    async with client_of(url) as nobody:
        return await call(nobody, "get_budget", run_id=run_id)


async def test_what_a_killed_server_had_under_way_is_lost_and_the_other_one_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path) as one, serving(tmp_path) as other:
        async with client_of(one.url) as here, client_of(other.url) as there:
            run_id = (await call(here, "start_run", task="softmax"))["run"]["run_id"]
            begun = await call(here, "compile", run_id=run_id, source=SLOW, up_to="quick_time", wait_s=0)
            with anyio.fail_after(60):
                while not (await call(there, "get_budget", run_id=run_id))["run"]["remaining"]["held_device_s"]:
                    pass
            one.process.kill()
            one.process.wait(timeout=10)
            resumed = await call(there, "start_run", task="softmax", resume=run_id)
            assert "lost with their server" in resumed["summary"]
            assert (await call(there, "job", job_id=begun["job_id"]))["job"]["state"] == "lost"
            checked = await call(there, "compile", run_id=run_id, source=FUSED, up_to="check_correctness", wait_s=100)
            assert checked["verdict"] == "correct"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.open_holds(run_id) == ()
    report = audit(tmp_path / "ledger.db")
    assert report.ok, report.findings


async def test_over_stdio_and_over_http_without_a_token_one_is_the_same_account(tmp_path: Path) -> None:
    program, *args = command(tmp_path)
    with serving(tmp_path) as server:
        async with (
            Client(StdioServerParameters(command=program, args=args)) as near,
            client_of(server.url) as far,
        ):
            run_id = (await call(near, "start_run", task="softmax"))["run"]["run_id"]
            asked = {"run_id": run_id, "source": FUSED, "up_to": "check_correctness", "wait_s": 100}
            first, second = await call(far, "compile", **asked), await call(near, "compile", **asked)
            assert (first["verdict"], second["verdict"]) == ("correct", "correct")
            assert second["cost"]["charged_s"] == 0
            assert first["remaining"] == second["remaining"]
    report = audit(tmp_path / "ledger.db")
    assert report.ok, report.findings

"""Who goes on with a run is told which jobs were lost since the last time, and of many only how many."""

from pathlib import Path

import pytest
from fakes import FakeRunner
from going_well import qualified
from mcp import Client

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.records import JobRequest
from kernelgate.server.app import build
from kernelgate.server.book import MOST_TOLD
from kernelgate.server.owner import this_process
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings

pytestmark = pytest.mark.anyio


def lose(ledger: Ledger, n: int) -> str:
    """A job of a server that is gone."""
    owner = this_process().model_copy(update={"start_s": -1.0})
    request = JobRequest(run_id="r1", account="local", tool="profile", arguments={"n": n}, owner=owner)
    return ledger.open_job(request)[0].job_id


async def test_a_resume_names_what_was_lost_since_the_last_one_and_counts_what_is_too_much(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, device="cpu")
    runner = FakeRunner(qualified)

    async def resumed(client: Client) -> str:
        result = await client.call_tool("start_run", {"task": "softmax", "resume": "r1"})
        return str((result.structured_content or {})["summary"])

    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        assert "lost" not in await resumed(client)
        with Ledger.open(settings.ledger) as ledger:
            jobs = [lose(ledger, n) for n in range(MOST_TOLD + 2)]
            named = ", ".join(jobs[:1:-1])
            assert f"left. {named} and 2 more lost with their server; what they held" in await resumed(client)
            assert "lost" not in await resumed(client), "it was told before"
            latest = lose(ledger, 99)
            assert f"left. {latest} lost with their server; what they held is free again." in await resumed(client)

"""Agents over HTTP while the book cannot be written: each is told so soon, reads go on, and afterwards all works."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from going_well import correct
from http_server import call
from near_server import HOST, near, near_client
from test_full_disk import fill
from test_gate import scripted
from test_http import FUSED
from test_locked_book import locked

from kernelgate.budget.audit import audit
from kernelgate.budget.connection import BUSY_TIMEOUT_S
from kernelgate.server.tokens import Tokens

pytestmark = pytest.mark.anyio
AGENTS = 8


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[httpx2.ASGITransport]:
    runner, _ = scripted(correct)
    async with near(tmp_path, {"cpu": runner}) as found:
        yield found


async def healthy(transport: httpx2.ASGITransport) -> bool:
    async with httpx2.AsyncClient(transport=transport, base_url=HOST) as http:
        return bool((await http.get("/healthz")).json()["status"] == "ok")


async def test_on_a_full_disk_each_account_is_told_so_and_goes_on_when_there_is_space(
    transport: httpx2.ASGITransport, tmp_path: Path
) -> None:
    secrets = [Tokens(tmp_path).add(name, f"{HOST}/mcp")[1] for name in ("alice", "bob")]
    for secret in secrets:
        async with near_client(transport, secret) as client:
            run_id = (await call(client, "start_run", task="softmax"))["run"]["run_id"]
            asked = {"run_id": run_id, "source": FUSED, "up_to": "check_correctness", "wait_s": 60}
            with pytest.MonkeyPatch.context() as disk:
                fill(disk, "admit", "cancel_job", "start_run")
                assert "the disk is full" in (await call(client, "compile", **asked))["error"]
                assert "the disk is full" in (await call(client, "start_run", task="softmax"))["error"]
                assert (await call(client, "get_budget", run_id=run_id))["run"]["open"], "reading needs no space"
                assert await healthy(transport)
            assert (await call(client, "compile", **asked))["verdict"] == "correct"
    report = audit(tmp_path / "ledger.db")
    assert report.ok, report.findings


async def test_agents_that_ask_while_the_book_is_locked_do_not_wait_for_each_others_patience(
    transport: httpx2.ASGITransport, tmp_path: Path
) -> None:
    said: list[dict[str, Any]] = []
    async with near_client(transport) as client:
        run_id = (await call(client, "start_run", task="softmax"))["run"]["run_id"]

        async def asking(n: int) -> None:
            said.append(await call(client, "compile", run_id=run_id, source=f"{FUSED}# {n}\n", up_to="compile"))

        with locked(tmp_path / "ledger.db"):
            begun_s = time.monotonic()
            async with anyio.create_task_group() as group:
                for n in range(AGENTS):
                    group.start_soon(asking, n)
            took_s = time.monotonic() - begun_s
            assert (await call(client, "get_budget", run_id=run_id))["run"]["open"]
        assert took_s < AGENTS * BUSY_TIMEOUT_S / 2
        assert all("another process writes; nothing was charged, try again" in one["error"] for one in said)
        checked = await call(client, "compile", run_id=run_id, source=FUSED, up_to="check_correctness", wait_s=60)
        assert checked["verdict"] == "correct"
    report = audit(tmp_path / "ledger.db")
    assert report.ok, report.findings

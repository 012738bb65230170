"""A ledger that another writer keeps locked: calls say so at once, charge nothing, and work when it is free again."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from going_well import correct
from live_server import forward
from mcp import Client
from test_gate import scripted

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings

pytestmark = pytest.mark.anyio


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Another process that writes and does not come to an end: for as long as this takes, be it a minute."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger waits for a lock a moment, not five seconds."""
    opened = Ledger.open.__func__
    monkeypatch.setattr(Ledger, "open", classmethod(lambda cls, path: opened(cls, path, busy_timeout_s=0.05)))


@pytest.mark.usefixtures("impatient")
async def test_calls_during_the_lock_say_busy_and_the_same_call_works_afterwards(tmp_path: Path) -> None:
    runner, asked = scripted(correct)
    settings = Settings(data_dir=tmp_path, device="cpu")
    arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "check_correctness"}
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            head = ledger.head()
            with locked(tmp_path / "ledger.db"):
                for tool, sent in (("compile", arguments), ("start_run", {"task": "softmax"})):
                    refused = await client.call_tool(tool, sent)
                    assert refused.is_error
                    assert "another process writes; nothing was charged, try again" in refused.content[0].text
                looked_up = await client.call_tool("get_budget", {"run_id": "r1"})
                assert not looked_up.is_error, "reading needs no lock"
                assert ledger.head() == head
            answered = await client.call_tool("compile", arguments)
            assert answered.structured_content["verdict"] == "correct"
            assert ledger.open_holds("r1") == ()
    assert asked.count("check_correctness") == 1
    assert audit(tmp_path / "ledger.db").ok


@pytest.mark.usefixtures("impatient")
async def test_a_lock_that_comes_while_the_worker_measures_loses_nothing_of_what_it_measured(tmp_path: Path) -> None:
    lock: list[object] = []

    def locked_meanwhile(request: object) -> object:
        if not lock:
            lock.append(locked(tmp_path / "ledger.db"))
            lock[0].__enter__()
        return correct(request)

    runner, asked = scripted(locked_meanwhile)
    settings = Settings(data_dir=tmp_path, device="cpu")
    arguments = {"run_id": "r1", "source": forward("return x"), "up_to": "check_correctness"}
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner}))) as client:
        await client.call_tool("start_run", {"task": "softmax"})
        refused = await client.call_tool("compile", arguments)
        assert refused.is_error
        assert "it is booked and charged once the book can be written" in refused.content[0].text
        lock[0].__exit__(None, None, None)
        answered = await client.call_tool("compile", arguments)
        assert answered.structured_content["verdict"] == "correct"
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            assert ledger.purse("r1").settled.check_calls == 1
            assert ledger.purse("r1").settled.device_s == pytest.approx(0.5)
            assert ledger.open_holds("r1") == ()
    assert asked.count("check_correctness") == 1
    assert audit(tmp_path / "ledger.db").ok

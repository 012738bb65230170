"""What `best` writes above the winner, and where; and that runs are told where the book cannot be written."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "budget"))

from book_scenario import ACCOUNT, Scenario
from mcp import Client
from pydantic import JsonValue
from test_own_kernel import precise_summary, runner, settings_with_own_kernel

from kernelgate.budget.errors import BookBusy, BookDiskFull, BookReadOnly, LedgerError
from kernelgate.budget.ledger import Ledger
from kernelgate.server import app
from kernelgate.server.app import build
from kernelgate.server.run_commands import show_runs, worst_workload, write_best
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings

ROWS: JsonValue = [{"workload": "64x256", "ratio": 1.5}, {"workload": "held_out_1", "ratio": 0.98765}]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"worst_workload": "held_out_1", "workloads": ROWS}, "held_out_1 at 0.9877x"),
        ({"worst_workload": "64x256", "workloads": ROWS}, "64x256 at 1.5000x"),
        ({"worst_workload": "gone", "workloads": ROWS}, "gone"),
        ({"worst_workload": "64x256"}, "64x256"),
        ({}, ""),
    ],
)
def test_the_worst_workload_is_named_with_its_ratio(report: dict[str, JsonValue], words: str) -> None:
    assert worst_workload(report) == words


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["missing/best.py", "."])
async def test_a_best_candidate_that_cannot_be_written_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    settings = settings_with_own_kernel(tmp_path)
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner()}))) as client:
        await client.call_tool("start_run", {"task": "op", "rule": "flat"})
        await precise_summary(client, "better")
    assert write_best(settings, "r1", tmp_path / place) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said
    assert said.count("\n") == 1


@pytest.mark.anyio
async def test_the_best_of_any_account_is_written_by_who_has_the_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "account_of", lambda ctx: "alice")
    settings = settings_with_own_kernel(tmp_path)
    async with Client(build(lambda: open_services(settings, runners={"cpu": runner()}))) as client:
        await client.call_tool("start_run", {"task": "op", "rule": "flat"})
        await precise_summary(client, "better")
    with Ledger.open(settings.ledger) as ledger:
        assert ledger.run("r1").account_id == "alice"
    assert write_best(settings, "r1", tmp_path / "best.py") == 0
    assert "better" in (tmp_path / "best.py").read_text("utf-8")


def test_what_a_run_has_left_is_cut_to_the_cap_of_its_account(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Scenario(tmp_path / "ledger.db")
    made.ledger.set_caps({ACCOUNT: 0.5})
    made.ledger.close()
    assert show_runs(Settings(data_dir=tmp_path, device="cpu"), made.run.run_id, close=False) == 0
    assert f"Left: 0.500 device seconds under the cap of account {ACCOUNT} (0.5 s), " in capsys.readouterr().out


@pytest.mark.parametrize("error", [BookReadOnly, BookDiskFull, BookBusy])
def test_runs_are_listed_where_the_book_cannot_be_written_and_closed_nowhere_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: type[LedgerError]
) -> None:
    settings = Settings(data_dir=tmp_path, device="cpu")
    Ledger.open(settings.ledger).close()

    def opening(_: object) -> Ledger:
        raise error("it cannot be written now")

    monkeypatch.setattr(Ledger, "open", opening)
    assert show_runs(settings, None, close=False) == 0
    assert capsys.readouterr().err == ""
    assert show_runs(settings, "r1", close=True) == 2
    assert "it cannot be written now" in capsys.readouterr().err

"""A run without a proven gain says so, and a ledger that cannot be written can still be read."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "budget"))

from book_scenario import Scenario

from kernelgate.budget.errors import BookReadOnly
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Rung, Verdict
from kernelgate.server.demo import play
from kernelgate.server.run_commands import show_runs, write_best
from kernelgate.server.settings import Settings


@pytest.fixture
def book(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path / "ledger.db")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


def test_best_says_that_what_was_timed_is_not_settled(
    book: Scenario, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write_best(settings, "r1", None) == 1
    assert "has no precisely timed candidate yet; time one with precise_time" in capsys.readouterr().err
    book.climb(Rung.precise, ratio=1.34, verdict=Verdict.ambiguous)
    book.climb(Rung.precise, ratio=0.94, verdict=Verdict.ambiguous)
    assert write_best(settings, "r1", None) == 1
    said = capsys.readouterr().err
    assert "2 of its candidates were timed precisely, and none was proven faster" in said
    assert "c1 at 1.34x, ambiguous" in said


def test_a_leaderboard_without_a_proven_gain_says_so(
    book: Scenario, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    book.climb(Rung.precise, ratio=1.34, verdict=Verdict.ambiguous)
    assert show_runs(settings, "r1", close=False) == 0
    assert "None of them is proven faster than the baseline." in capsys.readouterr().out
    book.climb(Rung.precise, ratio=1.2)
    assert show_runs(settings, "r1", close=False) == 0
    printed = capsys.readouterr().out
    assert "None of them" not in printed
    assert printed.index("c2") < printed.index("c1"), "what is proven stands before a higher ratio that is not"


def test_runs_and_best_read_a_ledger_that_cannot_be_written(
    book: Scenario, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    book.climb(Rung.precise, ratio=1.5)
    book.ledger.close()

    def refused(*_: object) -> Ledger:
        raise BookReadOnly("read-only")

    monkeypatch.setattr(Ledger, "open", refused)
    assert show_runs(settings, None, close=False) == 0
    assert show_runs(settings, "r1", close=False) == 0
    assert write_best(settings, "r1", None) == 0
    assert "ledger head" in capsys.readouterr().out
    assert show_runs(settings, "r1", close=True) == 2


def test_a_demo_without_a_proven_gain_says_why_and_ends_well(book: Scenario, settings: Settings) -> None:
    book.climb(Rung.precise, ratio=1.34, verdict=Verdict.ambiguous)

    class Player:
        run_id = "r1"

    printed = io.StringIO()
    assert play._without_a_gain(settings, Console(file=printed, soft_wrap=True), Player()) == 0
    assert "No candidate was proven faster than the baseline this time: on a busy" in printed.getvalue()
    assert "c1 came nearest. Run the demo again when the host is quiet." in printed.getvalue()

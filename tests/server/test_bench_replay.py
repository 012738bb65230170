"""`kernelgate bench replay` at the command line."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[1] / "budget"))

from book_scenario import TASK, Scenario, run_request

from kernelgate.budget.ladder.simulate import KINDS
from kernelgate.budget.model import Budget, Rung, Verdict
from kernelgate.server.cli import main

BUDGET = Budget(device_s=1000.0, deadline_s=10_000.0, precise_calls=100)


def replayed(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", "replay", *map(str, arguments)])


def replayed_json(*arguments: object) -> dict[str, Any]:
    found = replayed(*arguments, "--json")
    assert found.exit_code == 0, found.output
    read: dict[str, Any] = json.loads(found.stdout)
    return read


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two flat runs of twelve candidates, and one under halving."""
    made = Scenario(tmp_path_factory.mktemp("book") / "ledger.db", budget=BUDGET)
    draws = random.Random(1)
    for number in range(2):
        if number:
            made.run = made.ledger.start_run(TASK, run_request(budget=BUDGET))
            made.job_record = made.job()
        for _ in range(12):
            made.climb(Rung.precise, ratio=draws.uniform(0.8, 3.0), spread=0.01)
        made.climb(Rung.check, verdict=Verdict.wrong_values)
    made.ledger.start_run(TASK, run_request(rule="halving"))
    made.ledger.close()
    return made.path


def test_each_flat_run_is_a_stream_and_the_others_are_named(book: Path) -> None:
    found = replayed(book)
    assert found.exit_code == 0, found.output
    assert "r1 softmax  halving" in found.stdout
    assert "r2 softmax  flat" in found.stdout
    assert "Over all streams" in found.stdout
    assert "Left out: r3 ran under halving: it measured precisely only what that rule let in." in found.stdout


def test_as_json_it_has_rows_totals_and_what_was_left_out(book: Path) -> None:
    found = replayed_json(book, "--rules", "halving,flat", "--set", "halving.eta=6")
    assert [(row["stream"], row["rule"]) for row in found["streams"]] == [
        ("r1 softmax", "halving"), ("r1 softmax", "flat"), ("r2 softmax", "halving"), ("r2 softmax", "flat"),
    ]  # fmt: skip
    halving, flat = found["totals"]
    assert halving["parameters"]["eta"] == 6.0
    assert (halving["streams"], halving["plays"], halving["kind"]) == (2, 2, "recorded")
    assert flat["gpu_s_ratio_flat"]["value"] == 1.0
    assert halving["gpu_s_ratio_flat"]["value"] > 1.0
    assert len(found["left_out"]) == 1
    assert len(replayed_json(book, "--run", "r2", "--rules", "flat")["streams"]) == 1


def test_orders_are_shuffles_with_medians_over_them(book: Path) -> None:
    found = replayed_json(book, "--orders", 5, "--rules", "halving")
    assert [row["stream"] for row in found["streams"]] == ["r1 softmax"] * 5 + ["r2 softmax"] * 5
    assert found["totals"][0]["plays"] == 10
    table = replayed(book, "--orders", 5, "--rules", "halving").stdout
    assert "5 orders of each" in table
    assert table.count("r2 softmax  halving") == 1


def test_simulated_streams_have_the_noise_of_the_book(book: Path) -> None:
    found = replayed_json(book, "--simulate", 2, "--rules", "halving")
    assert [row["kind"] for row in found["totals"]] == list(KINDS)
    assert found["streams"] == []
    assert "mostly_wrong" in replayed(book, "--simulate", 1, "--rules", "flat").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rules", "best"], "there is no rule 'best'; the rules are: flat, halving, threshold."),
        (["--rules", ","], "there is no rule ''; the rules are: flat, halving, threshold."),
        (["--set", "halving=4"], "rule halving has no parameter ''"),
        (
            ["--set", "halving.eta=x"],
            "--set takes RULE.PARAMETER=VALUE, for example halving.eta=4, got 'halving.eta=x'.",
        ),
        (["--set", "halving.eta=nan"], "parameter eta of rule halving must be from"),
        (["--set", "halving.eta=0"], "parameter eta of rule halving must be from"),
        (["--set", "halving.zeta=3"], "rule halving has no parameter 'zeta'"),
        (["--rules", "flat", "--set", "halving.eta=3"], "--set is about halving, which --rules does not name."),
        (
            ["--run", "r3"],
            'start one with start_run(rule="flat"), or with rule = "flat" in kernelgate.toml. r3 ran under',
        ),
        (["--run", "r9"], "unknown run 'r9'"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(book: Path, arguments: list[str], said: str) -> None:
    found = replayed(book, *arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("kernelgate: ")
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_ledger_that_is_none_is_told(tmp_path: Path) -> None:
    assert "There is no book at" in replayed(tmp_path / "none.db").stderr
    (tmp_path / "text.db").write_text("not a book")
    assert replayed(tmp_path / "text.db").exit_code == 2
    (tmp_path / "softmax").mkdir()
    (tmp_path / "softmax" / "ledger.db").touch()
    assert f"such as {tmp_path / 'softmax' / 'ledger.db'}." in replayed(tmp_path).stderr
    told = replayed(tmp_path / "none.db", "--json")
    assert json.loads(told.stdout)["ok"] is None


def test_a_book_that_says_too_little_is_not_simulated(tmp_path: Path) -> None:
    made = Scenario(tmp_path / "ledger.db")
    made.climb(Rung.precise)
    made.ledger.close()
    assert "at least 5 are needed to read its noise" in replayed(made.path, "--simulate", 1).stderr

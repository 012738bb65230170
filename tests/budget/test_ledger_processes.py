import json
import os
import subprocess
import sys
from pathlib import Path

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger

HERE = Path(__file__).parent
ENVIRON = {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}


def test_ten_processes_make_one_book_and_spend_a_purse_of_a_hundred_calls_exactly_once(tmp_path: Path) -> None:
    book = tmp_path / "book.db"
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "greedy_spender.py"), str(book), str(n)],
            env=ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for n in range(10)
    ]
    answers = [process.communicate(timeout=100) for process in processes]
    assert [error.decode() for _, error in answers] == [""] * 10
    said = [json.loads(out) for out, _ in answers]
    assert {(one["run"], one["candidate"]) for one in said} == {("r1", "c1")}
    holds = [hold for one in said for hold in one["holds"]]
    assert len(holds) == len(set(holds)) == 100
    with Ledger.open(book) as ledger:
        assert ledger.purse("r1").open.compile_calls == 100
        assert list(ledger.open_holds("r1")) == sorted(holds)
    report = audit(book)
    assert report.ok, report.findings


def test_the_book_survives_two_hundred_kills(tmp_path: Path) -> None:
    book = tmp_path / "book.db"
    answer = subprocess.run(
        [sys.executable, str(HERE / "killed_writer.py"), str(book), "200", "7"],
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert said["ok"]
    assert said["acknowledged"] > 200, "the writers were killed before they wrote anything"

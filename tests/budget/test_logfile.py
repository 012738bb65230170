"""Whose turn it is to write, and that what was written is on the disk before anybody is told."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest
from book_scenario import Scenario, result_input

from kernelgate.budget.errors import BookBusy, BookDamaged
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.logfile import LogFile
from kernelgate.budget.model import Amount, Rung

HOLD_THE_TURN = """
import sys, time
from pathlib import Path
from kernelgate.budget.logfile import LogFile
LogFile.of(Path(sys.argv[1])).take_turn(5.0)
print("taken", flush=True)
time.sleep(600)
"""


@pytest.fixture
def log(book: Scenario) -> LogFile:
    return LogFile.of(book.path)


def test_a_turn_is_taken_by_one_and_passed_on(book: Scenario, log: LogFile) -> None:
    other = LogFile.of(book.path)
    assert log.take_turn(0.0)
    assert not other.take_turn(0.01)
    log.pass_turn()
    assert other.take_turn(5.0)


def test_whoever_waits_for_a_turn_in_vain_is_told_that_the_book_is_busy(book: Scenario, log: LogFile) -> None:
    candidate = book.climb(Rung.compile)
    impatient = Ledger.open(book.path, busy_timeout_s=0.01)
    log.take_turn(0.0)
    with pytest.raises(BookBusy, match="nothing was charged, try again"):
        impatient.admit(book.request(candidate, Rung.check))
    log.pass_turn()
    book.ledger.admit(book.request(candidate, Rung.check))


def test_who_gave_up_waiting_leaves_the_turn_to_others_and_may_come_again(book: Scenario, log: LogFile) -> None:
    first, second = LogFile.of(book.path), LogFile.of(book.path)
    assert log.take_turn(0.0)
    assert not first.take_turn(0.01)
    log.pass_turn()
    assert second.take_turn(5.0), "the turn that nobody wanted any more was passed on"
    assert not first.take_turn(0.01)
    second.pass_turn()
    assert first.take_turn(5.0)
    assert not log.take_turn(0.01)
    first.pass_turn()
    first.close()
    assert log.take_turn(5.0)


def test_a_turn_goes_to_each_of_many_that_wait(book: Scenario, log: LogFile) -> None:
    turns: list[int] = []
    inside: list[int] = []

    def write(n: int) -> None:
        mine = LogFile.of(book.path)
        for _ in range(50):
            assert mine.take_turn(30.0)
            inside.append(n)
            assert inside == [n], "nobody else writes in my turn"
            turns.append(inside.pop())
            mine.pass_turn()
        mine.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(turns) == sorted(list(range(6)) * 50)


def test_a_turn_ends_with_the_process_that_has_it(book: Scenario, log: LogFile) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_TURN, str(book.path)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "taken\n"
        assert not log.take_turn(0.0)
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=10)
        assert log.take_turn(5.0)


def test_a_file_system_without_locks_leaves_the_waiting_to_sqlite(
    book: Scenario, log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert log.take_turn(0.0)
    log.pass_turn()
    book.climb(Rung.check)


class Disk:
    """Counts what is synced, and what stood in the log then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self._sync = os.fdatasync
        monkeypatch.setattr("os.fdatasync", self.sync)

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        self._sync(descriptor)


def test_a_settlement_is_on_the_disk_before_it_is_told(book: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = book.hold(book.candidate(), Rung.compile)
    disk = Disk(monkeypatch)
    book.ledger.settle(hold.hold_seq, Amount(calls=1), result_input(Rung.compile))
    assert disk.syncs == 1


@pytest.mark.parametrize("rung", [Rung.compile, Rung.check])
def test_a_hold_or_refusal_waits_for_no_disk_but_a_head_that_covers_it_does(
    book: Scenario, rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = book.candidate()
    disk = Disk(monkeypatch)
    answer = book.ledger.admit(book.request(candidate, rung))
    assert disk.syncs == 0
    assert book.ledger.head() == answer.head
    assert disk.syncs == 1
    book.ledger.head()
    assert disk.syncs == 1, "the same head was on the disk already"


def test_a_disk_that_fails_to_sync_is_an_error_of_the_book(book: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    hold = book.hold(book.candidate(), Rung.compile)
    monkeypatch.setattr("os.fdatasync", failing)
    with pytest.raises(BookDamaged, match=r"Input/output error.*may be lost; check the disk"):
        book.ledger.settle(hold.hold_seq, Amount(calls=1), result_input(Rung.compile))


def test_nothing_that_failed_keeps_the_turn(book: Scenario, log: LogFile) -> None:
    def failing() -> None:
        with book.ledger.transaction() as connection:
            connection.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(BookDamaged):
        failing()
    assert log.take_turn(0.0)


OPEN_AND_LEAVE = """
import sys
from kernelgate.budget.ledger import Ledger
Ledger.open(sys.argv[1]).close()
"""


def test_opening_a_book_twice_in_one_process_leaves_the_locks_of_the_first(book: Scenario) -> None:
    """Closing any descriptor of the file would drop them; then the last to leave elsewhere takes the log away."""
    log = book.path.with_name("book.db-wal")
    Ledger.open(book.path).close()
    before = log.stat().st_ino
    subprocess.run(
        [sys.executable, "-c", OPEN_AND_LEAVE, str(book.path)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=True,
    )
    assert log.stat().st_ino == before
    book.climb(Rung.check)
    with sqlite3.connect(book.path) as reader:
        assert reader.execute("SELECT count(*) FROM results").fetchone() == (2,)
    reader.close()

"""The files beside the book: what was tampered with is found and named, what was pruned is counted."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from book_scenario import TASK, Scenario, result_input, run_request

from kernelgate.budget.artifacts import state_of
from kernelgate.budget.audit import audit, rendered
from kernelgate.budget.model import Amount, Rung
from kernelgate.budget.records import ArtifactInput
from kernelgate.server.run_commands import audit_book


def keep(book: Scenario, data: bytes, run_id: str | None = None) -> Path:
    """A call that leaves a log; where the log lies."""
    hold = book.hold(book.candidate(run_id=run_id), Rung.compile)
    log = ArtifactInput(name="output.log", data=data)
    book.ledger.settle(hold.hold_seq, Amount(calls=1), result_input(Rung.compile), artifacts=(log,))
    (row,) = book.ledger.query("SELECT path FROM artifacts ORDER BY artifact_id DESC LIMIT 1")
    return book.path.parent / row["path"]


@pytest.fixture
def book(tmp_path: Path) -> Scenario:
    book = Scenario(tmp_path / "book.db")
    for data in (b"first", b"second", b"second"):
        keep(book, data)
    return book


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def link_to_other(file: Path) -> None:
    file.unlink()
    file.symlink_to(__file__)


TAMPERINGS: list[tuple[Callable[[Path], object], str]] = [
    (lambda file: file.write_bytes(b"nicer"), "changed on disk"),
    (lambda file: file.write_bytes(b""), "changed on disk"),
    (lambda file: file.write_bytes(file.read_bytes() + b"\n"), "changed on disk"),
    (link_to_other, "changed on disk"),
    (folder, "cannot be read as a file"),
    (fifo, "cannot be read as a file"),
    (link_to_itself, "cannot be read as a file"),
]


@pytest.mark.parametrize(("tamper", "what"), TAMPERINGS)
def test_an_artifact_that_is_not_what_was_written_is_found_and_named(
    book: Scenario, tamper: Callable[[Path], object], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = keep(book, b"third")
    assert audit(book.path).ok
    tamper(file)
    (finding,) = audit(book.path).findings
    assert (finding.topic, finding.run_id) == ("artifacts", "r1")
    assert what in finding.what
    assert file.name in finding.what
    assert "output.log of result 4" in finding.what
    assert audit_book(book.path, None, as_json=False) == 1
    assert "The book does not hold." in capsys.readouterr().out


def prune_one(artifacts: Path) -> None:
    next(file for file in artifacts.rglob("*") if file.is_file()).unlink()


def prune_all(artifacts: Path) -> None:
    shutil.rmtree(artifacts)


@pytest.mark.parametrize(("prune", "there", "missing"), [(prune_one, 1, 1), (prune_all, 0, 2)])
def test_an_artifact_that_was_pruned_is_counted_and_said_and_the_book_holds(
    book: Scenario, prune: Callable[[Path], None], there: int, missing: int, capsys: pytest.CaptureFixture[str]
) -> None:
    prune(book.path.with_name("book.db.artifacts"))
    report = audit(book.path)
    assert report.ok, report.findings
    assert (report.counts.get("artifacts", 0), report.counts["artifacts_missing"]) == (there, missing)
    assert f"not beside the book: {missing}." in rendered(report)
    assert audit_book(book.path, None, as_json=False) == 0
    assert f"not beside the book: {missing}." in capsys.readouterr().out


def test_whole_artifacts_are_counted_once_for_each_file_and_nothing_is_said_of_missing_ones(book: Scenario) -> None:
    report = audit(book.path)
    assert (report.counts["artifacts"], report.counts.get("artifacts_missing")) == (2, None)
    assert "not beside the book" not in rendered(report)


def test_an_audit_of_one_run_looks_at_its_artifacts_alone(book: Scenario) -> None:
    other = book.ledger.start_run(TASK, run_request())
    keep(book, b"other", other.run_id).write_bytes(b"nicer")
    assert audit(book.path, run="r1").ok
    assert not audit(book.path, run=other.run_id).ok


def test_a_path_that_is_none_is_found_like_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert state_of(tmp_path / "a\0b", "0" * 64) == "unreadable"


def test_files_that_no_row_names_do_no_harm(book: Scenario) -> None:
    (book.path.with_name("book.db.artifacts") / "left over").write_bytes(b"by a crash before its row was written")
    assert audit(book.path).ok

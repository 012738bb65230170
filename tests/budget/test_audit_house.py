"""What the house paid: an audit says how much and why. What it may not have been is in `test_ledger_audit`."""

from pathlib import Path

import pytest
from book_scenario import OWNER, Scenario, result_input
from faults import JumpyClock

from kernelgate.budget.audit import audit, rendered
from kernelgate.budget.model import Amount, Rung
from kernelgate.budget.outcomes import Admitted
from kernelgate.budget.records import InUse


@pytest.fixture
def clock() -> JumpyClock:
    return JumpyClock()


@pytest.fixture
def book(tmp_path: Path, clock: JumpyClock) -> Scenario:
    return Scenario(tmp_path / "book.db", clock)


@pytest.fixture
def hold(book: Scenario) -> Admitted:
    return book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0, work_s=1.0)


def test_what_a_call_took_above_its_hold_is_told(book: Scenario, hold: Admitted) -> None:
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=1.5, work_s=3.0), result_input(Rung.check))
    assert audit(book.path).house_s == {"above_the_hold": 0.5}


def test_what_no_event_says_is_told_too(book: Scenario, hold: Admitted) -> None:
    result = result_input(Rung.check).model_copy(update={"house_s": 0.25})
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=0.5), result)
    assert audit(book.path).house_s == {"referee": 0.25}
    assert "Device seconds that the house paid: 0.250 referee." in rendered(audit(book.path))


def test_what_a_lost_owner_used_is_told(book: Scenario, hold: Admitted) -> None:
    used = InUse(job_id=book.job_record.job_id, hold_seq=hold.hold_seq, device_s=0.75)
    book.ledger.heartbeat(OWNER, [used])
    book.ledger.sweep(lambda owner, quiet_s: False)
    report = audit(book.path)
    assert report.house_s == {"owner_lost": 0.75}
    assert "Device seconds that the house paid: 0.750 owner lost." in rendered(report).splitlines()


@pytest.mark.parametrize(("passed_s", "ok"), [(40.0, True), (38.0, False)])
def test_a_fault_of_ours_cannot_have_used_more_than_the_time_that_went_by(
    book: Scenario, hold: Admitted, clock: JumpyClock, passed_s: float, ok: bool
) -> None:
    clock.passed_s += passed_s
    book.ledger.release(hold.hold_seq, "fault_of_ours", house_s=40.0)
    assert audit(book.path).ok is ok


def test_what_was_used_before_the_host_was_started_anew_is_bounded_by_no_clock(
    book: Scenario, hold: Admitted, clock: JumpyClock
) -> None:
    clock.passed_s += 50.0
    book.climb(Rung.compile)
    clock.passed_s = 0.0
    book.ledger.release(hold.hold_seq, "fault_of_ours", house_s=40.0)
    report = audit(book.path)
    assert report.ok, report.findings
    assert report.house_s == {"fault_of_ours": 40.0}

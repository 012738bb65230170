import pytest
from book_scenario import ACCOUNT, OWNER, Scenario, result_input

from kernelgate.budget.audit import audit
from kernelgate.budget.errors import UnknownId
from kernelgate.budget.jobs import JobEnded
from kernelgate.budget.model import HOUSE, Amount, Rung
from kernelgate.budget.records import InUse, JobRequest, Owner


def nobody(owner: Owner, quiet_s: float) -> bool:
    return False


def test_the_same_work_twice_joins_the_first_until_it_has_ended(book: Scenario) -> None:
    request = JobRequest(run_id="r1", account=ACCOUNT, tool="profile", arguments={"a": 1}, owner=OWNER)
    first, created = book.ledger.open_job(request)
    joined, created_again = book.ledger.open_job(request.model_copy(update={"owner": Owner(pid=1, start_s=0.0)}))
    assert (created, created_again, joined.job_id) == (True, False, first.job_id)
    assert book.ledger.start_job(first.job_id).state == "running"
    done = book.ledger.finish_job(first.job_id, {"status": "ok"})
    assert (done.state, done.result) == ("done", {"status": "ok"})
    assert book.ledger.open_job(request)[1]


def test_a_job_ends_once(book: Scenario) -> None:
    job_id = book.job_record.job_id
    assert book.ledger.cancel_job(job_id).state == "cancelled"
    for again in (lambda: book.ledger.finish_job(job_id, {}), lambda: book.ledger.start_job(job_id)):
        with pytest.raises(JobEnded, match="is cancelled"):
            again()


def test_another_accounts_job_reads_as_unknown(book: Scenario) -> None:
    with pytest.raises(UnknownId, match="unknown job"):
        book.ledger.job(book.job_record.job_id, "you")


def test_a_sweep_loses_the_jobs_of_dead_owners_and_releases_their_holds_once(book: Scenario) -> None:
    candidate = book.climb(Rung.compile)
    alive = book.job(Owner(pid=7, start_s=7.0))
    dead_hold = book.hold(candidate, Rung.check, cpu_s=5.0)
    live_hold = book.hold(candidate, Rung.check, cpu_s=2.0, job_id=alive.job_id)
    swept = book.ledger.sweep(lambda owner, quiet_s: (owner.pid, owner.start_s) == (7, 7.0))
    assert swept.jobs == (book.job_record.job_id,)
    assert swept.released == (dead_hold.hold_seq,)
    assert book.ledger.open_holds("r1") == (live_hold.hold_seq,)
    assert book.ledger.purse("r1").open.device_s == 2.0
    (reason,) = book.ledger.query("SELECT reason FROM events WHERE kind = 'release'")
    assert reason["reason"].startswith("owner_lost")
    again = book.ledger.sweep(lambda owner, quiet_s: owner.pid == 7)
    assert (again.jobs, again.released) == ((), ())
    assert audit(book.path).ok


def test_a_process_id_that_was_used_again_does_not_keep_a_job_alive(book: Scenario) -> None:
    later = OWNER.model_copy(update={"start_s": OWNER.start_s + 1})
    assert book.ledger.sweep(lambda owner, quiet_s: owner == later).jobs


def test_a_hold_left_open_by_an_ended_job_is_released_too(book: Scenario) -> None:
    hold = book.hold(book.climb(Rung.compile), Rung.check)
    book.ledger.finish_job(book.job_record.job_id, {})
    swept = book.ledger.sweep(nobody)
    assert (swept.jobs, swept.released) == ((), (hold.hold_seq,))


def test_a_settled_hold_of_a_dead_owner_stays_settled(book: Scenario) -> None:
    hold = book.hold(book.climb(Rung.compile), Rung.check)
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=0.5), result_input(Rung.check))
    assert book.ledger.sweep(nobody).released == ()
    assert book.ledger.purse("r1").settled.device_s == 0.5


def test_a_heartbeat_reaches_the_active_jobs_of_its_owner(book: Scenario) -> None:
    book.ledger.cancel_job(book.job().job_id)
    book.job(Owner(pid=7, start_s=7.0))
    assert book.ledger.heartbeat(OWNER) == 1
    assert book.ledger.job(book.job_record.job_id).heartbeat_utc > book.job_record.heartbeat_utc


def test_what_a_lost_owner_had_used_of_the_device_is_the_houses_and_says_that_it_is_estimated(book: Scenario) -> None:
    job_id, candidate = book.job_record.job_id, book.climb(Rung.compile)
    hold = book.hold(candidate, Rung.check, cpu_s=5.0)
    for device_s in (0.5, 0.75):
        book.ledger.heartbeat(OWNER, [InUse(job_id=job_id, hold_seq=hold.hold_seq, device_s=device_s)])
    charged = book.ledger.purse("r1").settled
    assert book.ledger.sweep(nobody).released == (hold.hold_seq,)
    purse = book.ledger.purse("r1")
    assert (purse.settled, purse.open.device_s) == (charged, 0.0)
    release, overrun = book.ledger.query("SELECT * FROM events WHERE hold_seq = ? ORDER BY seq", hold.hold_seq)
    assert (overrun["kind"], overrun["account_id"], overrun["cpu_s"], overrun["work_s"]) == (
        "overrun",
        HOUSE,
        0.75,
        0.0,
    )
    assert release["reason"] == overrun["reason"]
    assert overrun["reason"].startswith("owner_lost: ")
    assert overrun["reason"].endswith("; estimated: 0.750 s of the device by its last heartbeat")
    (house,) = book.ledger.query("SELECT * FROM cost_per_account WHERE account_id = ?", HOUSE)
    assert (house["overruns_device_s"], house["lost_device_s"], house["all_device_s"]) == (0.75, 0.75, 0.75)
    assert audit(book.path).ok


def test_what_was_used_under_a_hold_that_has_ended_is_not_booked_again_for_the_next_one(book: Scenario) -> None:
    job_id, candidate = book.job_record.job_id, book.climb(Rung.compile)
    first = book.hold(candidate, Rung.check)
    book.ledger.heartbeat(OWNER, [InUse(job_id=job_id, hold_seq=first.hold_seq, device_s=0.5)])
    book.ledger.settle(first.hold_seq, Amount(calls=1, cpu_s=0.5), result_input(Rung.check))
    book.hold(candidate, Rung.quick)
    book.ledger.sweep(nobody)
    assert book.ledger.query("SELECT seq FROM events WHERE kind = 'overrun'") == []


def test_each_lost_job_is_told_once_the_newest_first_and_the_rest_is_counted(book: Scenario) -> None:
    book.ledger.cancel_job(book.job_record.job_id)
    jobs = [book.job().job_id for _ in range(5)]
    assert book.ledger.tell_lost("r1", 3) == ((), 0)
    book.ledger.sweep(nobody)
    assert book.ledger.tell_lost("r1", 3) == (tuple(jobs[:1:-1]), 2)
    assert book.ledger.tell_lost("r1", 3) == ((), 0)
    latest = book.job().job_id
    book.ledger.sweep(nobody)
    assert book.ledger.tell_lost("r1", 3) == ((latest,), 0)

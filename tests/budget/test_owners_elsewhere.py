"""Servers in two containers share a ledger: neither takes the other's live work for lost."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from book_scenario import ACCOUNT, Scenario
from faults import JumpyClock

from kernelgate.budget.model import Rung
from kernelgate.budget.records import JobRequest, Owner
from kernelgate.server.owner import QUIET_LIMIT_S, is_alive, start_time_s, this_process
from kernelgate.server.watch import SWEEP_EVERY_S

ELSEWHERE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
WORKS = """
from kernelgate.server.owner import this_process
print(this_process().model_dump_json(), flush=True)
input()
"""


@contextmanager
def owner_elsewhere() -> Iterator[Owner]:
    """A process of another pid namespace, as one in another container is."""
    command = [*ELSEWHERE, sys.executable, "-P", "-c", WORKS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        said = child.stdout.readline()
        if not said:
            pytest.skip("this host allows no pid namespace of one's own")
        yield Owner.model_validate_json(said)
        child.stdin.close()


@pytest.mark.parametrize("place", ["", "another boot pid:[4026531836]"])
def test_an_owner_of_another_boot_or_of_an_older_version_lives_as_long_as_its_heartbeats_are_recent(place: str) -> None:
    owner = this_process().model_copy(update={"place": place})
    assert is_alive(owner, QUIET_LIMIT_S - 1.0)
    assert not is_alive(owner, QUIET_LIMIT_S)
    assert QUIET_LIMIT_S >= 5 * SWEEP_EVERY_S, "a few heartbeats may come late"


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare of util-linux")
def test_the_live_work_of_another_container_is_not_swept_until_its_heartbeats_have_ended(tmp_path: Path) -> None:
    book, clock = Scenario(tmp_path / "book.db"), JumpyClock()
    book.ledger._clock = clock
    with owner_elsewhere() as owner:
        assert owner.place != this_process().place
        assert start_time_s(owner.pid) != owner.start_s, "its number means somebody else here"
        request = JobRequest(run_id="r1", account=ACCOUNT, tool="profile", arguments={}, owner=owner)
        job_id = book.ledger.open_job(request)[0].job_id
        hold = book.hold(book.climb(Rung.compile), Rung.check, job_id=job_id)
        clock.offset_s = QUIET_LIMIT_S - 10.0
        assert job_id not in book.ledger.sweep(is_alive).jobs
        assert book.ledger.heartbeat(this_process().model_copy(update={"pid": owner.pid})) == 0, (
            "its number is not ours"
        )
        assert book.ledger.heartbeat(owner) == 1
        clock.offset_s *= 2
        assert job_id not in book.ledger.sweep(is_alive).jobs
        assert book.ledger.open_holds("r1") == (hold.hold_seq,)
    clock.offset_s *= 2
    swept = book.ledger.sweep(is_alive)
    assert (swept.jobs, swept.released) == ((job_id,), (hold.hold_seq,))
    book.ledger.close()


def test_what_an_ended_job_of_another_container_still_owes_is_waited_for_too(tmp_path: Path) -> None:
    book, clock = Scenario(tmp_path / "book.db"), JumpyClock()
    book.ledger._clock = clock
    job_id = book.job(Owner(pid=1, start_s=1.0, place="elsewhere")).job_id
    hold = book.hold(book.climb(Rung.compile), Rung.check, job_id=job_id)
    clock.offset_s = QUIET_LIMIT_S - 10.0
    book.ledger.finish_job(job_id, {})
    clock.offset_s = QUIET_LIMIT_S + 10.0
    assert book.ledger.sweep(is_alive).released == ()
    clock.offset_s = 2 * QUIET_LIMIT_S
    assert book.ledger.sweep(is_alive).released == (hold.hold_seq,)
    book.ledger.close()

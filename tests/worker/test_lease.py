"""One lease per device among all processes of a host."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import kernelgate
from kernelgate.tools.worker.lease import Lease, this_process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"


def hold_in_another_process(folder: Path) -> "subprocess.Popen[str]":
    """A process that holds the lease of `gpu` until its input ends."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom kernelgate.tools.worker.lease import Lease\n"
        "lease = Lease('gpu', Path(sys.argv[1]))\nprint(lease.try_take(), flush=True)\nsys.stdin.read()\n"
    )
    path = os.pathsep.join(str(Path(root).parent) for root in kernelgate.__path__)
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    return holder


def test_a_lease_is_held_by_one_process_at_a_time(folder: Path) -> None:
    with hold_in_another_process(folder) as holder:
        mine = Lease("gpu", folder)
        assert not mine.try_take()
        assert Lease("other", folder).try_take()
        note = mine.read()
        assert note.holder == this_process(holder.pid)
        assert note.holder is not None
        assert note.holder.alive


def test_a_killed_holder_loses_the_lease(folder: Path) -> None:
    with hold_in_another_process(folder) as holder:
        holder.kill()
        holder.wait()
        assert Lease("gpu", folder).try_take()


def test_a_release_holds_although_a_child_inherited_the_descriptor(folder: Path) -> None:
    lease = Lease("gpu", folder)
    assert lease.try_take()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    lease.release()
    assert Lease("gpu", folder).try_take()
    os.close(read)
    os.close(write)
    os.waitpid(pid, 0)


def test_a_second_release_does_nothing_and_a_second_take_is_an_error(folder: Path) -> None:
    lease = Lease("gpu", folder)
    lease.release()
    assert lease.try_take()
    with pytest.raises(RuntimeError, match="already held"):
        lease.try_take()
    lease.release()
    lease.release()
    assert not lease.held
    assert lease.read().holder is None


def test_residents_are_listed_while_they_live(folder: Path) -> None:
    lease = Lease("gpu", folder)
    assert lease.try_take()
    with hold_in_another_process(folder / "elsewhere") as resident:
        lease.list_resident(resident.pid)
        lease.list_resident(resident.pid)
        lease.release()
        assert [known.pid for known in lease.read().residents] == [resident.pid]
    assert lease.try_take()
    assert lease.read().residents == ()


def test_every_user_may_take_the_lease_and_nobody_remove_anothers(folder: Path) -> None:
    lease = Lease("GPU-12/../ab", folder)
    old = os.umask(0o077)
    try:
        assert lease.try_take()
    finally:
        os.umask(old)
    assert lease.path.parent == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE(lease.path.stat().st_mode) == 0o666


def test_a_link_in_place_of_the_lease_is_refused_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / "gpu.lease").symlink_to(victim)
    with pytest.raises(OSError, match=r"the lease file .* cannot be opened"):
        Lease("gpu", folder).try_take()
    assert victim.read_text() == "precious"


def test_a_spoilt_note_is_an_empty_one(folder: Path) -> None:
    lease = Lease("gpu", folder)
    assert lease.try_take()
    lease.path.write_bytes(b"\xff{")
    lease.release()
    assert lease.try_take()
    assert lease.read().holder == this_process(os.getpid())

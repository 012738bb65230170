"""What a candidate's caches begin with, and that nothing is put into one that a candidate has written."""

import os
from pathlib import Path

from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker.folders import caches_of, make_caches, shared_cache

CPU = DeviceRef(kind="cpu")


def shared(state_dir: Path) -> Path:
    folder = shared_cache(state_dir)
    (folder / "KEY").mkdir(parents=True)
    (folder / "KEY" / "bridge.so").write_bytes(b"built once")
    return folder


def test_a_new_cache_begins_with_what_is_the_same_for_all(tmp_path: Path) -> None:
    caches = caches_of(str(tmp_path), CPU, "abc")
    make_caches(caches, None, shared(tmp_path))
    assert (caches.triton / "KEY" / "bridge.so").read_bytes() == b"built once"
    assert (caches.triton / "KEY").stat().st_uid == os.geteuid()


def test_a_cache_that_a_candidate_has_written_is_left_alone(tmp_path: Path) -> None:
    caches = caches_of(str(tmp_path), CPU, "abc")
    make_caches(caches, None, None)
    outside = tmp_path / "outside"
    outside.mkdir()
    (caches.triton / "KEY").symlink_to(outside)
    make_caches(caches, None, shared(tmp_path))
    assert list(outside.iterdir()) == []


def test_without_a_shared_cache_it_begins_empty(tmp_path: Path) -> None:
    caches = caches_of(str(tmp_path), CPU, "abc")
    make_caches(caches, None, shared_cache(tmp_path))
    assert list(caches.triton.iterdir()) == []


def test_two_devices_keep_apart_what_their_users_write(tmp_path: Path) -> None:
    roots = {
        caches_of(str(tmp_path), DeviceRef(kind="cuda", uid=uid), digest).triton.parent
        for uid in ("GPU-1", "GPU-2")
        for digest in ("abc", "")
    }
    assert len(roots) == 4
    assert len({root.parent for root in roots}) == 2

"""After a call with hidden inputs the caches are as before, or they are emptied: there is no third way."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervised import ignore, make_request, make_runner

from kernelgate.tools.worker import cache_guard
from kernelgate.tools.worker.cache_guard import CacheGuard


def filled(root: Path) -> Path:
    (root / "triton" / "KEY").mkdir(parents=True)
    (root / "triton" / "KEY" / "kernel.cubin").write_bytes(b"code")
    (root / "inductor").mkdir()
    return root


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


ADDED: dict[str, Callable[[Path], object]] = {
    "a file": lambda root: (root / "inductor" / "509x1021").touch(),
    "a file in a kernel's folder": lambda root: (root / "triton" / "KEY" / "more").write_text("1021"),
    "folders": lambda root: (root / "inductor" / "a" / "b").mkdir(parents=True),
    "a link": lambda root: (root / "inductor" / "link").symlink_to("/etc/1021"),
    "a pipe": lambda root: os.mkfifo(root / "inductor" / "pipe"),
    "nothing": lambda root: None,
}
CHANGED: dict[str, Callable[[Path], object]] = {
    "a file is gone": lambda root: (root / "triton" / "KEY" / "kernel.cubin").unlink(),
    "a file has other bytes": lambda root: (root / "triton" / "KEY" / "kernel.cubin").write_bytes(b"note"),
    "a file has another mode": lambda root: (root / "triton" / "KEY" / "kernel.cubin").chmod(0o600),
    "a folder has another mode": lambda root: (root / "inductor").chmod(0o711),
    "a file has another name": lambda root: (root / "triton" / "KEY" / "kernel.cubin").rename(root / "triton" / "k"),
    "a file was linked": lambda root: os.link(root / "triton" / "KEY" / "kernel.cubin", root / "inductor" / "twin"),
    "a time was set back": lambda root: os.utime(root / "triton" / "KEY" / "kernel.cubin", (1, 1)),
    "a folder became a file": lambda root: ((root / "inductor").rmdir(), (root / "inductor").touch()),
}


@pytest.mark.parametrize("what", ADDED)
def test_what_was_added_is_removed(tmp_path: Path, what: str) -> None:
    root = filled(tmp_path / "cache")
    before = names(root)
    guard = CacheGuard(root)
    ADDED[what](root)
    assert guard.put_back()
    assert names(root) == before


@pytest.mark.parametrize("what", CHANGED)
def test_any_other_change_empties_the_caches(tmp_path: Path, what: str) -> None:
    root = filled(tmp_path / "cache")
    guard = CacheGuard(root)
    CHANGED[what](root)
    assert not guard.put_back()


def test_an_attribute_is_a_note_too(tmp_path: Path) -> None:
    root = filled(tmp_path / "cache")
    guard = CacheGuard(root)
    try:
        os.setxattr(root / "inductor", "user.note", b"1021")
    except OSError:
        pytest.skip("this file system keeps no attributes")
    assert not guard.put_back()


def test_more_than_can_be_looked_through_empties_the_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_guard, "MAX_ENTRIES", 6)
    root = filled(tmp_path / "cache")
    guard = CacheGuard(root)
    for number in range(3):
        (root / "inductor" / str(number)).touch()
    assert not guard.put_back()


@given(st.lists(st.sampled_from([*ADDED, *CHANGED]), max_size=4, unique=True))
def test_after_any_series_of_changes_it_is_as_before_or_says_no(
    tmp_path_factory: pytest.TempPathFactory, series: list[str]
) -> None:
    root = filled(tmp_path_factory.mktemp("caches") / "cache")
    before = names(root)
    guard = CacheGuard(root)
    changed = False
    for what in series:
        try:
            (ADDED | CHANGED)[what](root)
        except OSError:
            continue  # what it wants to change is gone, or in use, by now
        changed = changed or what in CHANGED
    assert guard.put_back() != changed
    assert changed or names(root) == before


NOTES = """
import os
PLACE = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "note")
def write():
    open(PLACE, "w").close()
def read():
    return os.path.exists(PLACE)
"""


@pytest.mark.anyio
@pytest.mark.parametrize("hidden", [True, False])
async def test_a_note_of_a_call_with_hidden_inputs_is_not_found_by_a_later_one(tmp_path: Path, *, hidden: bool) -> None:
    runner = make_runner(tmp_path)
    first = make_request(tmp_path / "state", NOTES, "write", "read").model_copy(update={"hidden": hidden})
    assert (await runner.run(first, ignore)).facts == [None, True]
    later = await runner.run(make_request(tmp_path / "state", NOTES, "read"), ignore)
    assert later.facts == [not hidden]
    await runner.close()

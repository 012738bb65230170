"""Scratches of a supervisor that lives stay, wherever it lives; those of a dead one go."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernelgate.tools.worker.folders import Scratches

pytestmark = pytest.mark.anyio

MAKES_ONE = """
import sys
from pathlib import Path
from kernelgate.tools.worker.folders import Scratches
scratches = Scratches(Path(sys.argv[1]))
folder = scratches.make(None)
(folder / "half").write_text("done")
folder.rename(folder.with_name(sys.argv[2]))
print(flush=True)
sys.stdin.read()
"""
NOBODY = "999999999-1-1"
"""A process number that means nobody here, as one of another container does."""


def supervisor(state_dir: Path) -> "subprocess.Popen[bytes]":
    """A process that makes a scratch and then waits."""
    command = [sys.executable, "-P", "-c", MAKES_ONE, str(state_dir), NOBODY]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def test_a_scratch_stays_while_its_supervisor_lives_and_goes_after_that(tmp_path: Path) -> None:
    with supervisor(tmp_path) as other:
        assert other.stdout is not None
        other.stdout.readline()
        ours = Scratches(tmp_path)
        own = ours.make(None)
        await ours.remove_orphans()
        assert (tmp_path / "scratch" / NOBODY / "half").exists(), "it belongs to a supervisor that lives elsewhere"
        (tmp_path / "scratch" / NOBODY).chmod(0)
        other.kill()
        other.wait()
        await ours.remove_orphans()
        assert list((tmp_path / "scratch").iterdir()) == [own]
    await ours.remove(own)
    assert list((tmp_path / "scratch").iterdir()) == []

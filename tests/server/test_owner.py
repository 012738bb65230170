"""Whether the server that owns a job still lives: asked of real processes."""

import os
import subprocess
import sys
from pathlib import Path

from kernelgate.server.owner import is_alive, start_time_s, this_process


def started() -> "subprocess.Popen[bytes]":
    """A child that does nothing until it is killed."""
    return subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)


def test_this_process_is_alive_and_one_that_started_at_another_time_under_its_number_is_not() -> None:
    me = this_process()
    assert is_alive(me, 0.0)
    assert is_alive(me, 1e9), "of a process that is seen no heartbeat is asked"
    assert not is_alive(me.model_copy(update={"start_s": me.start_s - 60.0}), 0.0)


def test_a_killed_process_is_dead_before_its_parent_has_reaped_it() -> None:
    with started() as child:
        start_s = start_time_s(child.pid)
        assert start_s is not None
        owner = this_process().model_copy(update={"pid": child.pid, "start_s": start_s})
        assert is_alive(owner, 0.0)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{child.pid}/stat").exists(), "it was reaped: nothing is tested"
        assert not is_alive(owner, 0.0)
        child.wait()
        assert not is_alive(owner, 0.0)

"""The referee's side of the process that reads the device's counters: started beside the first profile, then kept."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.counter_access import ADMINISTRATORS_ONLY, how_to_install
from kernelgate.tools.kit.evidence import Counter, Counters

PROGRAM: Final = Path(__file__).with_name("counting.py").read_text(encoding="utf-8")
"""Read while this package can be: the referee's walls hide it from its children."""
READY_S: Final = 6.0
"""Python, CUPTI and a context take about a second; who waits longer does without counters."""
ANSWER_S: Final = 5.0
WINDOW_US: Final = 15_000.0
"""Calls are counted for about so long."""
SAMPLES: Final = 100
"""Aimed at in a window: decoding one of some fifteen counters takes about a millisecond."""
COUNTERS_FOLDER: Final = "KERNELGATE_COUNTERS"
"""Variable of the referee: where cupti-python lies, if not in this environment."""
LINE_BYTES: Final = 1 << 16
WITHOUT: Final = {
    "missing": "no counters were read: {problem}; `{command}` adds them",
    "permission": f"no counters were read: {ADMINISTRATORS_ONLY}",
    "failed": "no counters were read: {problem}",
}


class _Reply(Frozen):
    """What the process says; all of it checked, though it is ours: a library of others fills it."""

    ready: str = ""
    armed: bool = False
    begun: bool = False
    counted: list[str] = Field(default_factory=list)
    problem: str = Field(default="", max_length=400)
    kind: str = "failed"
    samples: int = 0
    window_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    means: dict[str, float] = Field(default_factory=dict)
    sums: dict[str, float] = Field(default_factory=dict)


class Counting:
    """Windows of counting, one after the other. Nothing here raises: what went wrong with the last is in `problem`."""

    def __init__(self, folder: str) -> None:
        """Starts nothing yet.

        Args:
            folder: where cupti-python may lie apart from this environment.
        """
        self.problem = ""
        self._folder = folder
        self._hopeless = False
        self._process: subprocess.Popen[bytes] | None = None
        self._state: Literal["idle", "arming", "counting"] = "idle"
        self._starts = False
        self._began_s = 0.0
        self._pending = b""
        self._calls, self._call_us = 0, 0.0

    def arm(self) -> None:
        """Have the process ready for a window; it is started where there is none. Does not wait."""
        if self._hopeless:
            return  # and says why once more
        self.finish()
        self.problem = ""
        self._began_s = time.monotonic()
        self._starts = self._process is None
        if self._process is None:
            self._start()
        if self._say(b"arm\n"):
            self._state = "arming"

    def begin(self) -> bool:
        """Count from now on; False if that cannot be."""
        until_s = self._began_s + READY_S
        if self._starts:
            self._answer(until_s)
        armed = self._state == "arming" and self._answer(until_s).armed
        if not armed or not self._say(b"begin\n") or not self._answer().begun:
            self.problem = self.problem or WITHOUT["failed"].format(problem="its process was not ready")
            return False
        self._state = "counting"
        return True

    def end(self, calls: int, call_us: float) -> None:
        """Stop counting, after so many calls of such a wall clock. The values are computed meanwhile; see `read`."""
        self._calls, self._call_us = calls, call_us
        self._say(b"end\n")

    def read(self) -> Counters | None:
        """What was counted; None, and a problem, where that failed."""
        reply = self._answer()
        if not self.problem and (reply.window_us <= 0 or self._calls < 1):
            self.problem = WITHOUT["failed"].format(problem="the device had no work in the window")
        if self.problem:
            return None
        self._state = "idle"
        return Counters(
            values=values_of(reply.means, reply.sums, self._calls), calls=self._calls, call_us=self._call_us,
            seconds=time.monotonic() - self._began_s,
        )  # fmt: skip

    def finish(self) -> None:
        """The call is over: a process in the middle of a window is of no more use."""
        if self._state != "idle":
            self.close()

    def close(self) -> None:
        """End the process, whatever it does; the next window starts another."""
        self._state = "idle"
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None

    def _start(self) -> None:
        interval_ns = int(WINDOW_US * 1e3 / SAMPLES)
        self._pending = b""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, str(interval_ns), self._folder],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            self._ended(f"its process did not start ({error.strerror})")

    def _say(self, word: bytes) -> bool:
        pipe = None if self._process is None else self._process.stdin
        if pipe is None or self.problem:
            return False
        try:
            pipe.write(word)
            pipe.flush()
        except OSError:
            self._ended("its process ended")
            return False
        return True

    def _answer(self, until_s: float | None = None) -> _Reply:
        if self._process is None or self._process.stdout is None or self.problem:
            return _Reply()
        until_s = time.monotonic() + ANSWER_S if until_s is None else until_s
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                return self._ended("its process did not answer in time")
            more = os.read(descriptor, LINE_BYTES)
            if not more or len(self._pending) > LINE_BYTES:
                return self._ended("its process ended")
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            reply = _Reply.model_validate(json.loads(line))
        except (ValidationError, ValueError):
            return self._ended("its process said something else")
        if reply.problem:
            kind = reply.kind if reply.kind in WITHOUT else "failed"
            self._ended(reply.problem, kind)
        return reply

    def _ended(self, why: str, kind: str = "failed") -> _Reply:
        self.problem = WITHOUT[kind].format(problem=why, command=how_to_install(self._folder))
        self._hopeless = kind != "failed"
        self.close()
        return _Reply()


def values_of(means: dict[str, float], sums: dict[str, float], calls: int) -> dict[Counter, float]:
    """Our counters out of what CUPTI gave: shares from 0 to 1, sums for each call, warps while there was work."""
    shares: tuple[Counter, ...] = (
        "active", "dram_read", "dram_write", "l2", "l1", "issue", "tensor", "fma", "alu", "fp64", "xu", "l2_hits",
    )  # fmt: skip
    totals: tuple[Counter, ...] = ("l1_sectors", "l1_misses", "shared_wavefronts", "blocks")
    values: dict[Counter, float] = {name: means[name] / 100 for name in shares if name in means}
    values |= {name: sums[name] / calls for name in totals if name in sums}
    active, cycles = values.get("active", 0.0), means.get("mean_cycles", 0.0)
    if active > 0 and cycles > 0 and "busiest_cycles" in means:
        values["busy"] = min(1.0, means["busiest_cycles"] / cycles * active)
    return values

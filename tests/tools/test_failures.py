"""What a candidate that did not answer is told: a wall that it ran into is named with its class."""

import pytest

from kernelgate.budget.model import Verdict
from kernelgate.tools.kit import failures
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.kit.wire import ChildExit

FINISHED = ChildExit(kind="finished")


@pytest.mark.parametrize(
    ("error", "code"),
    {
        "OSError: [Errno 27] File too large": "DISK",
        "OSError: [Errno 28] No space left on device": "DISK",
        "BlockingIOError: [Errno 11] Resource temporarily unavailable": "FORK",
        "RuntimeError: can't start new thread": "FORK",
        "OSError: [Errno 2] No such file or directory": "CRASH",
    }.items(),
)
def test_who_meets_a_limit_on_disk_or_processes_crashes_with_its_class(error: str, code: str) -> None:
    failure = failures.of_fault(Fault(kind="raised", stage="forward", error=error), FINISHED, 1.0)
    assert (failure.verdict, failure.code) == (Verdict.crashed, code)
    assert error in failure.summary
    assert ("it met the limit" in failure.summary) == (code != "CRASH")


def test_a_process_that_was_ended_for_a_large_file_is_told_so() -> None:
    failure = failures.of_exit(ChildExit(kind="signalled", status=failures.SIGXFSZ), 1.0)
    assert failure is not None
    assert (failure.verdict, failure.code) == (Verdict.crashed, "DISK")


def test_what_an_exception_says_is_told_on_one_line_without_what_steers_a_terminal() -> None:
    fault = Fault(kind="raised", stage="profile", error="ValueError: no\n profiler\x1b[2J for\x00 you\n")
    told = failures.of_fault(fault, ChildExit(kind="finished"), 60.0)
    assert told.summary == "it raised in profile: ValueError: no profiler [2J for you"

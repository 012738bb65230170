from typing import Any

from kernelgate.budget.model import Verdict
from kernelgate.tools.kit.findings import finding
from kernelgate.tools.kit.moved import moved
from kernelgate.tools.profile import ProfileReport

SLOW = finding("missed_fusion", "3 kernels", 3.0, "fuse them")


def report(**fields: Any) -> ProfileReport:
    verdict = Verdict.diagnosed if fields.get("findings") else Verdict.no_finding
    return ProfileReport(verdict=verdict, summary="", **fields)


def test_time_launches_counters_and_findings_that_moved_are_told() -> None:
    before = report(call_us=82.0, launches=3, counters={"dram_read": 0.21, "l2": 0.30}, findings=(SLOW,))
    after = report(call_us=41.2, launches=1, counters={"dram_read": 0.44, "l2": 0.31})
    assert moved(before, after) == "a call 82 → 41.2 µs, launches 3 → 1, DRAM reads 21% → 44%; gone: missed_fusion"


def test_times_of_milliseconds_are_told_in_full() -> None:
    assert moved(report(call_us=2778.4), report(call_us=14_576.3)) == "a call 2778 → 14576 µs"


def test_what_stayed_is_not_told() -> None:
    before = report(call_us=82.0, launches=1, counters={"dram_read": 0.43})
    assert moved(before, report(call_us=81.0, launches=1, counters={"dram_read": 0.44})) == "the same time a call"


def test_a_new_finding_is_named() -> None:
    assert moved(report(call_us=10.0), report(call_us=20.0, findings=(SLOW,))).endswith("new: missed_fusion")


def test_profiles_that_share_no_numbers_have_nothing_to_tell() -> None:
    assert moved(report(), report(counters={"l2": 0.5})) == ""

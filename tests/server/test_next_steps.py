"""Advice: a step is called allowed only where a call would be taken."""

import pytest

from kernelgate.budget.model import ALL_ACCOUNTS, Budget, Purse, Rung, Spent, Verdict
from kernelgate.budget.purse import CapLeft
from kernelgate.server.advice import Bearings, Standing, cannot_afford, next_steps
from kernelgate.server.prices import LEAST_HOLD_S, least_device_s

BUILT = Standing("c1", "torch", {Rung.compile: Verdict.built}, None)


def bearings(left_s: float, least_s: float) -> Bearings:
    purse = Purse(granted=Budget(device_s=10.0), open=Spent(), settled=Spent(device_s=10.0 - left_s))
    return Bearings(purse, {Rung.check: 2 * least_s}, {Rung.check: least_s}, None, None)


@pytest.mark.parametrize(("left_s", "allowed"), [(0.5, True), (0.499, False), (0.0, False)])
def test_a_rung_of_which_not_even_the_least_is_left_is_not_called_allowed(left_s: float, allowed: bool) -> None:
    steps = next_steps(bearings(left_s, 0.5), "r1", "cpu", BUILT)
    (check,) = [step for step in steps if step.tool == "check_correctness"]
    assert check.allowed is allowed
    if left_s:
        wanted = "" if allowed else "0.499 device seconds are left, and check_correctness needs 0.500"
        assert check.missing == wanted


def test_seconds_that_a_cap_keeps_back_are_told_with_whose_cap_it_is() -> None:
    under_cap = bearings(0.25, 0.5)._replace(cap=CapLeft("alice", 36000.0, 0.25))
    (check,) = [step for step in next_steps(under_cap, "r1", "cpu", BUILT) if step.tool == "check_correctness"]
    assert check.missing.startswith("0.250 device seconds are left under the cap of account alice (36000 s), and")
    spent = bearings(0.0, 0.5)._replace(cap=CapLeft(ALL_ACCOUNTS, 1.5, 0.0))
    assert cannot_afford(spent).startswith(
        "Too few device seconds are left to this run under the cap of all accounts together (1.5 s): stop"
    )


def test_the_least_of_a_call_is_half_of_what_it_usually_takes_and_never_more_than_it_would_hold() -> None:
    assert least_device_s(4.0, 2.0) == 1.0
    assert least_device_s(0.5, 2.0) == 0.5
    assert least_device_s(4.0, 0.0) == LEAST_HOLD_S

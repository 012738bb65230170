"""The machine of `faulty_gate`: a little of it each time, more in the long tests."""

import pytest
from faulty_gate import FaultyGate
from hypothesis import HealthCheck, settings

QUIET = [HealthCheck.too_slow]  # two servers a life

FaultyGate.TestCase.settings = settings(
    max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=QUIET
)
TestAFaultyGate = FaultyGate.TestCase


class LongFaultyGate(FaultyGate):
    """The same, for longer."""


LongFaultyGate.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=QUIET
)
TestAFaultyGateForLong = pytest.mark.long(pytest.mark.timeout(3000)(LongFaultyGate.TestCase))

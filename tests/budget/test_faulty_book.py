"""The machine of `faulty_book`, a little of it each time and more than ten thousand steps in the long tests."""

import pytest
from faulty_book import FaultyBook
from hypothesis import HealthCheck, settings

QUIET = [HealthCheck.too_slow]  # each step is synced to disk, and audited

FaultyBook.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=QUIET
)
TestAFaultyBook = FaultyBook.TestCase


class LongFaultyBook(FaultyBook):
    """The same, for longer."""


LongFaultyBook.TestCase.settings = settings(
    max_examples=220, stateful_step_count=50, deadline=None, suppress_health_check=QUIET
)
TestAFaultyBookForLong = pytest.mark.long(pytest.mark.timeout(3000)(LongFaultyBook.TestCase))

"""The book that most tests of the budget write in."""

from pathlib import Path

import pytest
from book_scenario import Scenario


@pytest.fixture
def book(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path / "book.db")

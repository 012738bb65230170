"""The bench harness: one process that imported torch and forks a referee and a candidate for each job."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import asking

HARNESS = Path(__file__).with_name("bench_harness.py")
Conduct = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def conduct() -> Iterator[Conduct]:
    """`conduct(task, files, steps)`: runs bench methods on a candidate and returns what they returned."""
    with asking(HARNESS) as ask:

        def run(
            task: dict[str, Any], files: dict[str, str] | str, steps: list[list[Any]], **more: Any
        ) -> dict[str, Any]:
            named = {"candidate.py": files} if isinstance(files, str) else files
            outcome: dict[str, Any] = ask({"task": task, "files": named, "steps": steps, **more})
            return outcome

        yield run

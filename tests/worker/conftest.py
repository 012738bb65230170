"""The bench harness: one process that imported torch and forks a referee and a candidate for each job."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HARNESS = Path(__file__).with_name("bench_harness.py")
Conduct = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def conduct() -> Iterator[Conduct]:
    """`conduct(task, files, steps)`: runs bench methods on a candidate and returns what they returned."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(HARNESS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sink, source = process.stdin, process.stdout

        def run(
            task: dict[str, Any], files: dict[str, str] | str, steps: list[list[Any]], **more: Any
        ) -> dict[str, Any]:
            named = {"candidate.py": files} if isinstance(files, str) else files
            sink.write(json.dumps({"task": task, "files": named, "steps": steps, **more}) + "\n")
            sink.flush()
            outcome: dict[str, Any] = json.loads(source.readline())
            return outcome

        yield run
        sink.close()
        process.wait(timeout=60)

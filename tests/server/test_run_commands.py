"""What `best` writes above the winner."""

import pytest
from pydantic import JsonValue

from kernelgate.server.run_commands import worst_workload

ROWS: JsonValue = [{"workload": "64x256", "ratio": 1.5}, {"workload": "held_out_1", "ratio": 0.98765}]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"worst_workload": "held_out_1", "workloads": ROWS}, "held_out_1 at 0.9877x"),
        ({"worst_workload": "64x256", "workloads": ROWS}, "64x256 at 1.5000x"),
        ({"worst_workload": "gone", "workloads": ROWS}, "gone"),
        ({"worst_workload": "64x256"}, "64x256"),
        ({}, ""),
    ],
)
def test_the_worst_workload_is_named_with_its_ratio(report: dict[str, JsonValue], words: str) -> None:
    assert worst_workload(report) == words

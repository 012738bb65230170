"""Readings of one-fault kernels on an H200 host (see tests/gpu/one_fault.py), judged again.

Those without counters are of a run in which they could not be read. Thresholds were set with these in view: that other
kernels are named as well is what `tests/gpu/coach_run.py` measures.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kernelgate.tools.kit.diagnosis import diagnose
from kernelgate.tools.kit.evidence import Evidence, Inspected

READINGS: dict[str, Any] = json.loads(Path(__file__).with_name("one_fault_readings.json").read_text(encoding="utf-8"))
HARMLESS = 1.25


def evidence_of(name: str) -> Evidence:
    return Evidence.model_validate_json(json.dumps(READINGS[name]["evidence"]))


@pytest.mark.parametrize("name", [name for name, reading in READINGS.items() if reading["kinds"]])
def test_the_one_fault_of_a_kernel_is_named_first(name: str) -> None:
    findings = diagnose(evidence_of(name)).findings
    assert findings, "nothing was found"
    assert findings[0].kind in READINGS[name]["kinds"]


@pytest.mark.parametrize("name", [name for name, reading in READINGS.items() if not reading["kinds"]])
def test_a_kernel_without_fault_is_told_to_change_nothing_that_matters(name: str) -> None:
    assert all(finding.headroom < HARMLESS for finding in diagnose(evidence_of(name)).findings)


def test_without_counters_nothing_wrong_is_told_in_their_place() -> None:
    wrong = {}
    for name, reading in READINGS.items():
        findings = diagnose(evidence_of(name).model_copy(update={"counters": None})).findings
        if reading["kinds"] and findings and findings[0].kind not in reading["kinds"]:
            wrong[name] = findings[0].kind
    assert wrong == {}


def seen(name: str, **values: float) -> tuple[Inspected, ...]:
    return (Inspected(name=name, us=199.5, blocks=8192, threads=256, registers=30, values=values),)


def test_what_nsight_compute_counted_of_conflicts_is_told_in_its_numbers() -> None:
    values = {"l1": 0.962, "shared_wavefronts": 34603008.0, "shared_excess": 32505856.0}
    evidence = evidence_of("one_bank").model_copy(update={"counters": None, "inspected": seen("one_bank", **values)})
    (found,) = diagnose(evidence).findings
    assert found.kind == "bank_conflicts"
    assert "94% of the 3.46e+07 passes" in found.evidence


def test_what_nsight_compute_counted_of_sectors_is_told_in_its_numbers() -> None:
    inspected = seen("strided", sectors=67e6, sectors_ideal=8.4e6)
    evidence = evidence_of("strided_affine").model_copy(update={"counters": None, "inspected": inspected})
    assert "8.0x the sectors" in diagnose(evidence).findings[0].evidence

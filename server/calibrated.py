"""What the book knows of the devices that it measured on, for `doctor`."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from kernelgate.budget.connection import open_for_reading
from kernelgate.budget.errors import LedgerError
from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.facts import Ceilings

AA_KIND: Final = "noise_floor"
"""Calibration of a task on a device: the baseline against itself."""
BASELINE_KIND: Final = "baseline_{}"
"""Calibration of a task on a device: another baseline against the eager one."""
DEVICE_KIND: Final = "device"
"""Calibration of a device: ceilings and least readings."""
LATEST: Final = """
SELECT c.kind, c.environment_id, c.facts_json, c.created_utc, e.facts_json AS environment_json, t.name AS task
FROM calibrations c JOIN environments e USING (environment_id) LEFT JOIN tasks t USING (task_digest)
WHERE c.calibration_id IN (SELECT max(calibration_id) FROM calibrations GROUP BY environment_id, kind, task_digest)
ORDER BY c.environment_id, c.kind, t.name
"""


class Noise(Frozen):
    """A task's baseline against itself."""

    task: str
    floor: float
    """Gaps up to this are noise."""
    baselines_us: Annotated[tuple[float, ...], BeforeValidator(as_tuple)] = ()
    """Time of a call, by workload."""
    half_widths: Annotated[tuple[float, ...], BeforeValidator(as_tuple)] = ()
    """Half of the 95 % interval of the ratio to itself, by workload."""


class Calibrated(Frozen):
    """One environment of this book."""

    environment_id: str
    name: str
    """Of the device."""
    measured_utc: str
    ceilings: Ceilings
    sm_clock_mhz: int | None = None
    noise: Annotated[tuple[Noise, ...], BeforeValidator(as_tuple)] = ()


def calibrations_in(ledger: Path) -> tuple[Calibrated, ...]:
    """Of each environment the latest; none where there is no book that can be read."""
    try:
        with closing(open_for_reading(ledger)) as connection:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute(LATEST)]
    except (LedgerError, sqlite3.Error):
        return ()  # `audit` says what is wrong with a book
    return tuple(
        _calibrated(row, [other for other in rows if other["environment_id"] == row["environment_id"]])
        for row in rows
        if row["kind"] == DEVICE_KIND
    )


def told(one: Calibrated) -> Iterator[str]:
    """What is told of an environment, for people."""
    c = one.ceilings
    clock = f" at {one.sm_clock_mhz} MHz" if one.sm_clock_mhz else ""
    yield f"measured {one.measured_utc}{clock}: copies {c.copy_gb_s:,.0f} GB/s, in the cache {c.cache_gb_s:,.0f} GB/s"
    yield f"matrix products {c.matmul_gflop_s:,.0f} GFLOP/s"
    yield f"a timing reads {c.empty_us:.3g} µs of nothing, {c.launch_us:.3g} µs of the smallest call"
    for noise in one.noise:
        pairs = zip(noise.baselines_us, noise.half_widths, strict=True)
        widths = ", ".join(f"±{100 * half:.2g} % at {length_us:,.0f} µs" for length_us, half in sorted(pairs))
        yield f"noise of {noise.task}: gaps up to {100 * noise.floor:.2g} % ({widths})"


def _calibrated(device: dict[str, Any], all_of_it: list[dict[str, Any]]) -> Calibrated:
    facts, environment = json.loads(device["facts_json"]), json.loads(device["environment_json"])
    noises = [(row["task"], json.loads(row["facts_json"])) for row in all_of_it if row["kind"] == AA_KIND]
    return Calibrated(
        environment_id=device["environment_id"],
        name=str(environment.get("name", environment.get("device", ""))),
        measured_utc=device["created_utc"],
        ceilings=Ceilings.model_validate({name: facts[name] for name in Ceilings.model_fields if name in facts}),
        sm_clock_mhz=facts.get("sm_clock_mhz"),
        noise=tuple(
            Noise(
                task=task, floor=aa["floor"],
                baselines_us=tuple(each["baseline_us"] for each in aa.get("baselines", ())),
                half_widths=tuple(each["half_width"] for each in aa.get("baselines", ())),
            )
            for task, aa in noises if task is not None
        ),
    )  # fmt: skip

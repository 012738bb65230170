"""One file of docs/measurements: what stands in it, how it is written by a benchmark and read back.

A script here that has the name of a measurement (`server_cost.py`) ends with `write_measurement`; `make bench` runs all
of them. `bench_<part>.py` are parts that such scripts put together.
"""

import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import JsonValue, ValidationError

from kernelgate.server.environment import cpu_model
from kernelgate.server.gpus import list_gpus
from kernelgate.server.installed import package_version
from kernelgate.tasks.model import Frozen

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "measurements"
LOOP_STEPS: Final = 100_000
"""Some milliseconds a loop: long beside the clock, short beside a turn of the scheduler."""
LOOPS: Final = 25


class MeasuredHost(Frozen):
    """Where something was measured."""

    device: str
    driver: str
    cpu: str
    python: str
    torch: str
    triton: str
    kernelgate: str


class MeasurementFile(Frozen):
    """One file of `docs/measurements`."""

    name: str
    date_utc: str
    command: str
    host: MeasuredHost
    figures: dict[str, int | float]
    """Flat names that end in a unit and a qualifier (`tools_list_s_median`) → numbers."""
    raw: JsonValue
    """The readings that the figures were computed from."""


class BadMeasurement(Exception):
    """A file that is not a measurement: one sentence."""


def read_measurement(path: Path) -> MeasurementFile:
    """A measurement; raises `BadMeasurement`, also for NaN, infinity, and a name that is not the file's."""
    try:
        found = MeasurementFile.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadMeasurement(f"{path.name}: {place}: {first['msg']}") from None
    if found.name != path.stem:
        raise BadMeasurement(f"{path.name} holds the measurement {found.name!r}: name and file must agree")
    return found


def measured_host(*, on_gpu: bool) -> MeasuredHost:
    """This host; on a GPU its first one."""
    gpu = list_gpus()[0] if on_gpu else None
    return MeasuredHost(
        device=gpu.name if gpu else "cpu",
        driver=gpu.driver if gpu else "",
        cpu=cpu_model(),
        python=platform.python_version(),
        torch=package_version("torch"),
        triton=package_version("triton"),
        kernelgate=package_version("kernelgate"),
    )


def plain_python_loop_ms() -> list[float]:
    """How fast the interpreter is now: milliseconds of one fixed loop, several times.

    A shared host is at times half as fast as at others, with nothing else to show for it. What was measured at two
    times is compared as ratios to this.
    """
    found: list[float] = []
    for _ in range(LOOPS):
        began_s = time.perf_counter()
        mixed = 0
        for step in range(LOOP_STEPS):
            mixed = (mixed * 31 + step) & 0xFFFFF
        found.append((time.perf_counter() - began_s) * 1e3)
    return found


def with_pace(
    figures: Mapping[str, int | float], raw: Mapping[str, JsonValue], before_ms: Sequence[float]
) -> tuple[dict[str, int | float], dict[str, JsonValue]]:
    """Figures and readings with the interpreter's speed beside them; call it behind all else that is measured.

    Args:
        figures: what was measured.
        raw: its readings.
        before_ms: `plain_python_loop_ms` from before all else; where that of now differs, the host changed its speed.
    """
    after_ms = plain_python_loop_ms()
    pace = {"plain_python_loop_ms_median": round(statistics.median([*before_ms, *after_ms]), 5)}
    return {**pace, **figures}, {**raw, "plain_python_loop_ms": {"before": list(before_ms), "after": list(after_ms)}}


def write_measurement(
    name: str,
    figures: dict[str, int | float],
    raw: JsonValue,
    *,
    on_gpu: bool = False,
    folder: Path = FOLDER,
    command: str = "",
) -> Path:
    """Write a measurement of this host, now, and return its file. An older one of the same name is replaced."""
    written = MeasurementFile(
        name=name,
        date_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=command or f"make bench BENCH={name}",
        host=measured_host(on_gpu=on_gpu),
        figures=figures,
        raw=raw,
    )
    path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(written.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return path

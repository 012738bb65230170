"""One file of docs/measurements: what stands in it, how it is written by a benchmark and read back.

A script here that has the name of a measurement (`server_cost.py`) ends with `write_measurement`; `make bench` runs all
of them. `bench_<part>.py` are parts that such scripts put together.
"""

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import JsonValue, ValidationError

from kernelgate.server.environment import cpu_model, package_version
from kernelgate.server.gpus import list_gpus
from kernelgate.tasks.model import Frozen

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "measurements"


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

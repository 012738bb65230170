"""Writes docs/measurements/README.md from the measurements beside it: one table, figure by figure, with date and host.

A measurement is one JSON object: `name`, `date_utc`, `command`, `host` (device, driver, cpu, python, torch, triton,
kernelgate), `figures` (flat names that end in a unit → numbers), `raw`. `--check` writes nothing and fails if the page
is not what it would be.
"""

import json
import sys
from pathlib import Path
from typing import Final

from kernelgate.tasks.model import Frozen
from pydantic import JsonValue, ValidationError

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "measurements"
HEAD: Final = """# Measurements

Each figure that a page of this project quotes stands here. Made by `make bench` (`tests/benchmarks/collect.py`) from the
JSON files in this folder, which hold the raw readings; do not edit by hand. Figures of different hosts are not compared.
"""


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
    raw: JsonValue


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


def shown(value: float) -> str:
    """A figure with four significant digits, whole numbers in full."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def page(measurements: list[MeasurementFile]) -> str:
    """The page over all measurements, in order of name."""
    lines = [HEAD]
    if not measurements:
        return HEAD + "\nNothing has been measured yet.\n"
    lines += ["| file | figure | value | date (UTC) | host |", "|---|---|---:|---|---|"]
    for each in sorted(measurements, key=lambda measurement: measurement.name):
        host = each.host
        where = f"{host.device}, {host.cpu}, Python {host.python}, torch {host.torch}, triton {host.triton}"
        lines += [
            f"| [{each.name}]({each.name}.json) | `{figure}` | {shown(value)} | {each.date_utc[:10]} | {where} |"
            for figure, value in each.figures.items()
        ]
    lines += ["", "| file | made by |", "|---|---|"]
    lines += [f"| {each.name} | `{each.command}` |" for each in sorted(measurements, key=lambda m: m.name)]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it."""
    target = FOLDER / "README.md"
    try:
        text = page([read_measurement(path) for path in sorted(FOLDER.glob("*.json"))])
    except BadMeasurement as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if "--check" in arguments:
        return 0 if target.is_file() and target.read_text(encoding="utf-8") == text else 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{target.relative_to(FOLDER.parents[1])} written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

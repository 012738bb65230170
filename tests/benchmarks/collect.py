"""Writes docs/measurements/README.md from the measurements beside it: one table, figure by figure, with date and host.

`--check` writes nothing and fails if the page is not what it would be.
"""

import sys
from typing import Final

from measurement import FOLDER, BadMeasurement, MeasurementFile, read_measurement

HEAD: Final = """# Measurements

Each figure that a page of this project quotes stands here. `make bench` (`tests/benchmarks/collect.py`) makes this page
from the JSON files beside it, which hold the raw readings; do not edit it. Figures of different hosts are not compared.
A shared host is at times twice as fast as at others: `plain_python_loop_ms_median` is a fixed loop of the interpreter,
measured before and after the rest. Divide by it what two days are to be compared in.
"""


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

"""What Nsight Compute prints of a report, as CSV, read into facts. Pure."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Final

from kernelgate.tools.kit.evidence import HotLine, Inspected, Stall

SHOWN: Final = 3
MAX_PLACE_CHARS: Final = 120
MAX_NAME_CHARS: Final = 400
METRICS: Final = {
    "dram": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "l2": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "l1": ("l1tex__throughput.avg.pct_of_peak_sustained_active", 0.01),
    "compute": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", 0.01),
    "waves": ("launch__waves_per_multiprocessor", 1.0),
    "sectors": ("memory_l2_theoretical_sectors_global", 1.0),
    "sectors_ideal": ("memory_l2_theoretical_sectors_global_ideal", 1.0),
    "shared_wavefronts": ("memory_l1_wavefronts_shared", 1.0),
    "shared_excess": ("derived__memory_l1_wavefronts_shared_excessive", 1.0),
    "spills": ("sass__inst_executed_register_spilling", 1.0),
}
"""Our name → Nsight Compute's, and what makes a share of it."""
STALL: Final = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio")
SAMPLES: Final = "# Samples"
UNREAD: Final = "<Unable to open"
"""What ncu prints in place of a line whose file it does not find."""
NO_TEXTS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
DURATION: Final = "gpu__time_duration.sum"
TO_US: Final = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6}


def number_of(text: str) -> float:
    """A number as ncu prints it: `4,096`; 0 for `no data`."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return 0.0
    return number if math.isfinite(number) and number >= 0 else 0.0


def kernels_of(raw: str) -> list[Inspected]:
    """Of ncu's page `raw`: a row of names, one of units, then one a launch; lines before it are its talk."""
    rows = list(csv.reader(_lines_from(raw, '"ID"')))
    if len(rows) < 3:
        return []
    units = dict(zip(rows[0], rows[1], strict=False))
    launches = (dict(zip(rows[0], row, strict=True)) for row in rows[2:] if len(row) == len(rows[0]))
    return [_kernel(launch, units) for launch in launches]


def hot_of(table: str) -> dict[str, tuple[HotLine, ...]]:
    """Of ncu's page `source`: for each kernel a row with its name, a row of names, then one a place."""
    found: dict[str, tuple[HotLine, ...]] = {}
    name, columns, rows = "", list[str](), list[dict[str, str]]()
    for row in csv.reader(_lines_from(table, '"Kernel Name"')):
        if row and row[0] == "Kernel Name":
            found.setdefault(name, _hottest(rows))
            name, columns, rows = row[1] if len(row) > 1 else "", [], []
        elif not columns:
            columns = row
        else:
            rows.append(dict(zip(columns, row, strict=False)))
    found.setdefault(name, _hottest(rows))
    found.pop("", None)
    return found


def lines_of(table: str, kernel: str, texts: Mapping[str, Sequence[str]] = NO_TEXTS) -> tuple[HotLine, ...]:
    """Of ncu's page `source` with lines and instructions of a launch: the lines of the source where most warps were.

    For each file and function a table, in which the row of a line has the sums of its instructions' rows, which follow
    and have no number. Empty for a kernel that was built without line numbers. `texts`: lines of files by name, for
    those that were built in a folder which is gone.
    """
    found: dict[str, dict[str, dict[str, str]]] = {}
    file, function, columns = "", "", list[str]()
    for row in csv.reader(_lines_from(table, ('"File Path"', '"Function Name"', '"Line No"'))):
        title, value = (row[0], row[1]) if len(row) > 1 else ("", "")
        if title == "File Path":
            file, columns = PurePath(value).name, []
        elif title in ("Function Name", "Kernel Name"):
            function, columns = value, []
        elif title == "Line No":
            columns = row
        elif columns and title.isdigit():
            # `Source` is there twice: of the line and, empty here, of an instruction.
            known = texts.get(file, ())
            text = known[int(title) - 1] if value.startswith(UNREAD) and int(title) <= len(known) else value
            cells = {**dict(zip(columns, row, strict=False)), "Source": f"{file}:{title} {text}"}
            _add(found.setdefault(function, {}).setdefault(f"{file}:{title}", {}), cells)
    chosen = [found[kernel]] if kernel in found else list(found.values())
    return _hottest([line for lines in chosen for line in lines.values()])


def located(
    kernels: Sequence[Inspected], hot: Mapping[str, tuple[HotLine, ...]], longest: int, lines: tuple[HotLine, ...]
) -> list[Inspected]:
    """Launches with where their warps waited: the longest one's lines if they are known, of others the instructions."""
    return [
        kernel.model_copy(update={"hot": lines if lines and place == longest else hot.get(kernel.name, ())})
        for place, kernel in enumerate(kernels)
    ]


def stalls_of(row: Mapping[str, str]) -> tuple[Stall, ...]:
    """The most frequent reasons why warps did not issue."""
    begin, end = STALL
    found = {
        name[len(begin) : -len(end)]: number_of(value)
        for name, value in row.items()
        if name.startswith(begin) and name.endswith(end)
    }
    total = sum(found.values()) or 1.0
    found.pop("selected", None)  # those issued
    ordered = sorted(found.items(), key=lambda item: -item[1])[:SHOWN]
    return tuple(Stall(reason=reason, share=ratio / total) for reason, ratio in ordered if ratio > 0)


def _add(line: dict[str, str], cells: Mapping[str, str]) -> None:
    """Sum a line that is told in several places, such as of a function that is inlined twice."""
    for name, value in cells.items():
        counts = name == SAMPLES or name.startswith("stall_")
        line[name] = str(number_of(line.get(name, "")) + number_of(value)) if counts else value


def _kernel(row: Mapping[str, str], units: Mapping[str, str]) -> Inspected:
    return Inspected(
        name=row.get("Kernel Name", "")[:MAX_NAME_CHARS],
        us=number_of(row.get(DURATION, "")) * TO_US.get(units.get(DURATION, ""), 1.0),
        blocks=int(number_of(row.get("launch__grid_size", ""))),
        threads=int(number_of(row.get("launch__block_size", ""))),
        registers=int(number_of(row.get("launch__registers_per_thread", ""))),
        values={ours: number_of(row[theirs]) * factor for ours, (theirs, factor) in METRICS.items() if theirs in row},
        stalls=stalls_of(row),
    )


def _hottest(rows: list[dict[str, str]]) -> tuple[HotLine, ...]:
    samples = [number_of(row.get(SAMPLES, "")) for row in rows]
    total = sum(samples)
    ordered = sorted(zip(samples, range(len(rows)), strict=True), key=lambda item: (-item[0], item[1]))[:SHOWN]
    return tuple(
        HotLine(
            place=" ".join(rows[place].get("Source", "").split())[:MAX_PLACE_CHARS],
            share=count / total,
            reason=_main_reason(rows[place]),
        )
        for count, place in ordered
        if count > 0
    )


def _main_reason(row: Mapping[str, str]) -> str:
    reasons = {name: number_of(value) for name, value in row.items() if name.startswith("stall_") and "(" not in name}
    best = max(reasons, key=lambda name: reasons[name], default="")
    return best.removeprefix("stall_") if best and reasons[best] > 0 else ""


def _lines_from(text: str, beginning: str | tuple[str, ...]) -> Iterable[str]:
    lines = text.splitlines()
    first = next((place for place, line in enumerate(lines) if line.startswith(beginning)), len(lines))
    return lines[first:]

"""Nsight Compute in the candidate's own process, behind its walls: what it reports is a claim like the rest.

It replays each kernel some twenty times for different counters, so a call takes about ten seconds.
"""

import base64
import contextlib
import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from glob import glob
from pathlib import Path
from typing import Any, Final

import torch

from kernelgate.tasks.model import ENTRY_FILE
from kernelgate.tools.kit.counter_access import ADMINISTRATORS_ONLY
from kernelgate.tools.kit.evidence import Inspected
from kernelgate.tools.worker import protocol
from kernelgate.tools.worker.nsight_tables import hot_of, kernels_of, lines_of, located
from kernelgate.tools.worker.sizing import byte_size
from kernelgate.tools.worker.timing import Arguments

PROGRAM: Final = Path(__file__).with_name("nsight_alone.py").read_text(encoding="utf-8")
"""Read while this package can be: a child's walls hide it."""
SECTIONS: Final = (
    "SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "SourceCounters", "LaunchStats", "Occupancy",
)  # fmt: skip
LAUNCHES: Final = 20
"""Most launches of a call that are replayed: a call of thousands would take an hour."""
SAVED_BYTES: Final = 768 << 20
"""Most of weights and inputs: they go through a file, to a process that holds them beside ours. The scratch, of 1 GiB,
has room for the report yet."""
READ_BYTES: Final = 64 << 20
"""Most of a report that is read at all, and of a table that is made of it."""
TABLE_S: Final = 15.0
"""Making a table of a report takes about a second."""
HOMES: Final = ("/usr/local/cuda/bin", *sorted(glob("/opt/nvidia/nsight-compute/*"), reverse=True))
"""Where it lies if not on the path; the newest first."""


class Nsight:
    """Of one candidate."""

    def __init__(self, scratch: Path) -> None:
        """Files go into its scratch."""
        self._saved = scratch / "nsight.pt"
        self._folder = scratch / "candidate"
        self._report = scratch / "kernelgate.ncu-rep"

    def inspect(self, question: protocol.Inspect, kept: Mapping[str, Any]) -> protocol.InspectedCall:
        """Run one call, read the report; what ncu does is never an exception. `kept`: what `nsight_alone` takes."""
        ncu = shutil.which("ncu", path=os.pathsep.join((os.environ.get("PATH", ""), *HOMES)))
        if ncu is None:
            return _without("ncu is not on this host: install NVIDIA Nsight Compute")
        needed = byte_size((kept["inputs"], kept["state"]))
        if needed > SAVED_BYTES:
            return _without(f"inputs and weights of {needed >> 20} MiB are too large for ncu here")
        try:
            torch.save(dict(kept), self._saved)
            torch.cuda.empty_cache()
            return self._inspected(ncu, time.monotonic() + question.limit_s)
        except (OSError, ValueError, RuntimeError, csv.Error) as error:
            return _without(f"ncu could not be used: {type(error).__name__}: {error}")
        finally:
            self._saved.unlink(missing_ok=True)

    def part(self, start: int) -> protocol.ReportBytes:
        """A piece of the report; empty behind its end."""
        with self._report.open("rb") as file:
            file.seek(start)
            return protocol.ReportBytes(data=base64.b64encode(file.read(protocol.REPORT_PART_BYTES)).decode())

    def _inspected(self, ncu: str, end_s: float) -> protocol.InspectedCall:
        command = [
            ncu, "--profile-from-start", "off", "--launch-count", str(LAUNCHES), "--import-source", "yes", "-f",
            *(part for section in SECTIONS for part in ("--section", section)),
            "-o", str(self._report), sys.executable, "-P", "-c", PROGRAM, str(self._folder), str(self._saved),
        ]  # fmt: skip
        status, said = ended(command, end_s)
        if not self._report.exists():
            return _without(why_not(status, said))
        size = self._report.stat().st_size
        if size > READ_BYTES:
            return _without(f"ncu's report of {size >> 20} MiB is too large to be read")
        kernels = kernels_of(self._table(ncu, "raw", end_s))
        if not kernels:
            return _without(why_not(status, said))
        seen = sorted(self._located(ncu, end_s, kernels), key=lambda kernel: -kernel.us)[: protocol.MAX_INSPECTED]
        kept_bytes = size if size <= protocol.REPORT_BYTES else 0
        return protocol.InspectedCall(kernels=tuple(seen), launches=len(kernels), report_bytes=kept_bytes)

    def _located(self, ncu: str, end_s: float, kernels: list[Inspected]) -> list[Inspected]:
        """Lines of the source for the longest launch; instructions of the others, and where it has no lines."""
        longest = max(range(len(kernels)), key=lambda place: kernels[place].us)
        of_it = ("--launch-skip", str(longest), "--launch-count", "1")
        lines = lines_of(
            self._table(ncu, "source", end_s, "--print-source", "cuda,sass", *of_it), kernels[longest].name,
            {file.name: file.read_text("utf-8", "replace").splitlines() for file in self._folder.glob("*.*")},
        )  # fmt: skip
        if lines and len(kernels) == 1:  # each table takes about a second, which the candidate pays
            return located(kernels, {}, longest, lines)
        return located(kernels, hot_of(self._table(ncu, "source", end_s, "--print-source", "sass")), longest, lines)

    def _table(self, ncu: str, page: str, end_s: float, *options: str) -> str:
        command = [ncu, "--import", str(self._report), "--page", page, "--csv", *options]
        return ended(command, min(end_s, time.monotonic() + TABLE_S))[1]


def kept_for(
    model: Any, constructed: Arguments, inputs: Arguments, question: protocol.Inspect, module: str
) -> dict[str, Any]:
    """What `nsight_alone` builds the call of."""
    is_module = isinstance(model, torch.nn.Module)
    return {
        "positional": constructed[0], "named": constructed[1], "inputs": inputs, "seed": question.seed,
        "tf32": question.tf32, "state": model.state_dict() if is_module else {},
        "training": model.training if is_module else False, "module": module, "file": ENTRY_FILE,
    }  # fmt: skip


def ended(command: list[str], end_s: float) -> tuple[int | None, str]:
    """Exit status (None: it was stopped, at its time or for saying too much) and what it printed.

    Its whole process group ends with it.
    """
    with Path(os.devnull).open("rb") as nothing:
        process = subprocess.Popen(
            command, stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    assert process.stdout is not None
    said = bytearray()
    descriptor = process.stdout.fileno()
    os.set_blocking(descriptor, False)
    open_end = True
    while open_end and time.monotonic() < end_s and len(said) <= READ_BYTES:
        try:
            piece = os.read(descriptor, 1 << 16)
            said += piece
            open_end = bool(piece)
        except BlockingIOError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
    if open_end:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    process.stdout.close()
    return (None if open_end else status), said.decode("utf-8", "replace")


def why_not(status: int | None, said: str) -> str:
    """One sentence on a run that left no kernels."""
    if status is None:
        return "ncu was stopped: it took too long, or said too much"
    if "ERR_NVGPUCTRPERM" in said:
        return ADMINISTRATORS_ONLY
    if "another" in said.lower() and "profil" in said.lower():
        return "another profiler is attached to the device: stop it and ask again"
    if "No kernels were profiled" in said:
        return "ncu saw no kernel in the call"
    lines = said.splitlines()
    told = [line.strip() for line in lines if "error" in line.lower()] or lines
    return f"ncu left no report (status {status}): {' '.join(told[-1:])}"


def _without(note: str) -> protocol.InspectedCall:
    return protocol.InspectedCall(note=note[: protocol.MAX_ERROR_CHARS])

"""Ladder against flat on one host, and against how others judge: `python tests/gpu/ladder_run.py OUT.json [--write]`.

For each stream of `--streams` (names of tests/benchmarks/streams, or files): `kernelgate bench ladder` as a process,
whose report stands beside OUT.json; then on some random candidates that its flat pass judged correct KernelBench's
evaluator (`--kernelbench CHECKOUT`) and a fixed `do_bench` in a fresh process (`ladder_rows.py`). OUT.json is written
after each step; what was whole in it already is not run again. All of it ends within `--seconds`: of them
`--rows-seconds` are kept for the rows of each stream, and what was not reached is told. `--write` merges OUT.json into
docs/measurements/ladder.json, each task with its own date, so that several calls make one measurement. `--device cpu`
tries it all without a GPU. Ends with 1 where a stream came to no report.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import gpu_path as gpu_path  # before the package

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from gpu_host import say
from ladder_figures import merged, write
from ladder_rows import chosen, laid_out, row
from measurement import FOLDER, measured_host

from kernelgate.budget.ladder.stream import read_stream
from kernelgate.server.bench.report import StreamReport, read_report
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import DeviceKind

ROOT: Final = Path(__file__).resolve().parents[2]
STREAMS: Final = ROOT / "tests" / "benchmarks" / "streams"
SECONDS: Final = 420.0
ROWS_SECONDS: Final = 110.0
LEAST_S: Final = 45.0
"""A server and its task want half of that before the first candidate."""
LEAST_ROW_S: Final = 8.0
ENDS_WITHIN_S: Final = 20.0
"""After Ctrl-C a partial report is written and a server ended within so long."""
CANDIDATES: Final = 5


class Run:
    """What there is by now, in the file of this run, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.kind: DeviceKind = "cpu" if options.device == "cpu" else "cuda"
        self.end_s = time.monotonic() + options.seconds
        self.found: dict[str, Any] = {"seed": options.seed, "device": options.device, "streams": {}}
        if options.out.exists():
            self.found |= json.loads(options.out.read_text(encoding="utf-8"))

    def left_s(self) -> float:
        return self.end_s - time.monotonic()

    def keep(self) -> None:
        part = self.options.out.with_suffix(".part")
        part.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
        part.replace(self.options.out)

    def stream(self, path: Path) -> None:
        """One stream: both passes, then the rows of the other ways."""
        told: dict[str, Any] = self.found["streams"].setdefault(path.stem, {})
        if "report" not in told or told["report"]["why_partial"]:
            limit_s = self.left_s() - self.options.rows_seconds
            if limit_s < LEAST_S:
                told.setdefault("ended", f"no time was left: {limit_s:.0f} s")
                return self.keep()
            told.clear()  # rows of another run are of another host
            told |= self.ladder(path, limit_s)
            self.keep()
        if "report" in told:
            self.rows(path, told)
        return None

    def ladder(self, path: Path, limit_s: float) -> dict[str, Any]:
        """`kernelgate bench ladder` with Ctrl-C at the limit, which leaves a partial report."""
        report = self.options.out.with_name(f"{self.options.out.stem}_{path.stem}.json")
        report.unlink(missing_ok=True)
        command = [
            sys.executable, "-m", "kernelgate.server", "bench", "ladder", str(path), "--seed", str(self.options.seed),
            "--device", self.options.device, "-o", str(report), *self.more(),
        ]  # fmt: skip
        begun_s = time.perf_counter()
        code, said = within(command, limit_s)
        told: dict[str, Any] = {
            "date_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "exit": code,
            "host": measured_host(on_gpu=self.kind == "cuda").model_dump(),
            "s": round(time.perf_counter() - begun_s, 3), "said": said[-4000:],
        }  # fmt: skip
        say(f"{path.stem}: exit {code} in {told['s']} s\n{said[-3000:]}")
        if report.exists():
            told["report"] = read_report(report).streams[0].model_dump(mode="json")
        return told

    def more(self) -> list[str]:
        """Options that are passed on."""
        words = [] if self.options.tasks is None else ["--tasks", str(self.options.tasks)]
        # A folder that has a ledger already is refused: its book would answer.
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        return words if self.options.data is None else [*words, "--data", str(self.options.data / now)]

    def rows(self, path: Path, told: dict[str, Any]) -> None:
        """The other ways on some candidates, one after the other, as long as there is time."""
        report = StreamReport.model_validate_json(json.dumps(told["report"]))
        if report.truth is None:
            return
        stream = read_stream(path, report.task)
        task = Catalogue([self.options.tasks] if self.options.tasks else []).task(report.task)
        sources = {line.id: line.source for line in stream.lines}
        names, told["correct"] = chosen(stream, report.truth, CANDIDATES, self.options.seed)
        rows: dict[str, dict[str, Any]] = told.setdefault("rows", {})
        for way in ("do_bench", *(("kernelbench",) if self.options.kernelbench else ())):
            done = rows.setdefault(way, {})
            for name in names:
                if name in done or self.left_s() < LEAST_ROW_S:
                    continue
                with tempfile.TemporaryDirectory(prefix="kernelgate-row-") as scratch:
                    files = laid_out(Path(scratch), task, sources[name], self.kind)
                    done[name] = row(way, Path(scratch), files, self.kind, self.options.kernelbench, self.left_s())
                say(f"  {way} {name}: {json.dumps(done[name])[:300]}")
                self.keep()


def within(command: Sequence[str], limit_s: float, ends_within_s: float = ENDS_WITHIN_S) -> tuple[int, str]:
    """Exit status and what was said; Ctrl-C at the limit, and the end of what does not mind it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for limit, number in ((limit_s, signal.SIGINT), (ends_within_s, signal.SIGKILL)):
            try:
                said, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.send_signal(number)
            else:
                return process.returncode, said
        said, _ = process.communicate()
        return process.returncode, said


def path_of(name: str) -> Path:
    """A stream of this project by its name, or a file."""
    return Path(name) if name.endswith(".jsonl") else STREAMS / f"{name}.jsonl"


def main(arguments: Sequence[str]) -> None:
    """Run, and write what there is after each step."""
    parser = argparse.ArgumentParser(description="Ladder against flat on one host, and against how others judge.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--streams", default="", help="names or files, with commas; default: all of tests/benchmarks")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tasks", type=Path, help="a folder of tasks beside the bundled ones")
    parser.add_argument("--data", type=Path, help="keep the ledgers there")
    parser.add_argument("--kernelbench", default="", metavar="CHECKOUT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the whole call")
    parser.add_argument("--rows-seconds", type=float, default=ROWS_SECONDS, help="of them for the rows of each stream")
    parser.add_argument("--write", action="store_true", help="merge into ladder.json (of a CPU: ladder_cpu.json)")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder of the measurements")
    options = parser.parse_args(arguments)
    # The package may not be installed here: then its processes find it beside this file, as this one does.
    paths = [str(ROOT / ".dev"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    run = Run(options)
    names = options.streams.split(",") if options.streams else sorted(path.stem for path in STREAMS.glob("*.jsonl"))
    if not names:
        parser.error(f"there are no streams in {STREAMS.relative_to(ROOT)}: name files with --streams")
    if lacking := [name for name in names if not path_of(name).is_file()]:
        parser.error(f"there is no stream {lacking[0]}")
    for name in names:
        run.stream(path_of(name))
    run.keep()
    if options.write:
        name = "ladder" if run.kind == "cuda" else "ladder_cpu"
        streams = run.found["streams"]
        with contextlib.suppress(FileNotFoundError):
            earlier = json.loads((options.into / f"{name}.json").read_text(encoding="utf-8"))["raw"]
            streams = merged(earlier["streams"], streams)
        say(str(write(name, streams, options.into)))
    if lacking := [name for name in names if "report" not in run.found["streams"][path_of(name).stem]]:
        raise SystemExit(f"no report of {', '.join(lacking)}: see {options.out}")


if __name__ == "__main__":
    main(sys.argv[1:])

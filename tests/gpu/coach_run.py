"""Does a profile name the one fault of kernels that have one? `python tests/gpu/coach_run.py OUT.json [--write]`.

Four parts, through a real server over stdio: each one-fault kernel from source to quick verdict and profile; a good
Triton candidate of each bundled task, for what a profile costs; where it is on PATH, `ncu` over the same kernels; and
bad input, see `coach_bad.py`.
Writes OUT.json after each step and ends within `--seconds`; what was not reached is told. With `--part` a later call
goes on in the same file. `--device cpu` takes what is written in operators of torch alone. `--write` makes a file of
docs/measurements of what OUT.json holds.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gpu_path as gpu_path  # before the package

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from coach_bad import CASES as BAD_CASES
from coach_bad import bad
from coach_steps import DEPTH, FAILURES, STEP_S, lay_out, line_of, profiled, takes_depth
from gpu_calls import known_good
from gpu_host import TooLong, limited, say
from measurement import write_measurement
from one_fault import CASES, OneFault
from stdio_server import StdioServer, stdio_server
from timing_candidates import differing
from write_figures import without_places

from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Task
from kernelgate.tasks.source import with_overrides

NAMES: Final = [case.name for case in (*CASES, *BAD_CASES)]
PARTS: Final = ("kernels", "bundled", "ncu", "bad")
SECONDS: Final = 330.0
HARMLESS: Final = 1.25
"""A finding of less headroom than this tells nobody to change a kernel that is good."""
NCU_LIMIT_S: Final = 30.0
NCU_SETS: Final = ("basic", "full")
ONCE: Final = '''"""One call of a candidate between the marks that `ncu --profile-from-start off` waits for."""

import candidate
import reference
import torch

torch.manual_seed(0)
model = candidate.ModelNew(*reference.get_init_inputs()).cuda()
inputs = [one.cuda() if isinstance(one, torch.Tensor) else one for one in reference.get_inputs()]
with torch.no_grad():
    model(*inputs)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    model(*inputs)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
'''


class Book:
    """What was found so far, in a file; and how long there is for more."""

    def __init__(self, out: Path, seconds: float, *, goes_on: bool) -> None:
        self.out = out
        self.found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if goes_on and out.exists() else {}
        self._end_s = time.monotonic() + seconds

    def left_s(self) -> float:
        return self._end_s - time.monotonic()

    def keep(self, part: str, name: str, told: dict[str, Any]) -> None:
        """Of a part, under a name; the file is replaced in one go."""
        self.found.setdefault(part, {})[name] = told
        self.write()

    def write(self) -> None:
        self.found["figures"] = figures(self.found)
        self.out.with_suffix(".part").write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
        self.out.with_suffix(".part").replace(self.out)


def is_right(case: OneFault, profile: dict[str, Any]) -> bool:
    """The first finding is of a kind that the case has; of a healthy one there is none, or a harmless one."""
    if profile.get("status") != "ok":
        return False
    first = next(iter(profile["findings"]), None)
    if not case.kinds:
        return first is None or first["headroom"] < HARMLESS
    return first is not None and first["kind"] in case.kinds


def kernels(book: Book, server: StdioServer, chosen: Sequence[OneFault], depth: str) -> None:
    """Each one-fault kernel; those of a task share a run."""
    runs: dict[str, str] = {}
    for case in sorted(chosen, key=lambda each: each.task.name):
        if book.left_s() < STEP_S:
            book.keep("kernels", case.name, {"kinds": case.kinds, "right": False, "error": "no time was left"})
            continue
        try:
            if case.task.name not in runs:
                began_s = time.perf_counter()
                runs[case.task.name] = server.call("start_run", task=case.task.name, rule="flat")["run"]["run_id"]
                book.keep("start_run_s", case.task.name, {"wall_s": round(time.perf_counter() - began_s, 4)})
            told = profiled(server, runs[case.task.name], case.source, depth)
        except FAILURES as error:
            told = {"error": f"{type(error).__name__}: {error}"[:2000]}
        right = is_right(case, told.get("profile", {}))
        book.keep("kernels", case.name, {"kinds": case.kinds, "right": right, **told})
        say(f"  {'right' if right else 'WRONG'} {case.name} ({' or '.join(case.kinds) or 'healthy'}): {line_of(told)}")


def good(task: Task, kind: str) -> str:
    """A candidate of a bundled task: in Triton for a GPU, the reference itself for a CPU."""
    return differing(task, "cuda")["triton"] if kind == "cuda" else known_good(task)


def bundled_tasks(book: Book, server: StdioServer, kind: str, depth: str) -> None:
    """What a profile costs on a good candidate of each bundled task."""
    for name in Catalogue([]).names():
        if book.left_s() < STEP_S:
            book.keep("bundled", name, {"error": "no time was left"})
            continue
        try:
            run_id = server.call("start_run", task=name, rule="flat")["run"]["run_id"]
            told = profiled(server, run_id, good(Catalogue([]).task(name), kind), depth)
        except FAILURES as error:
            told = {"error": f"{type(error).__name__}: {error}"[:2000]}
        book.keep("bundled", name, told)
        say(f"  {name}: {line_of(told)}")


def timed(command: list[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """Wall clock of a program with all that it starts, ended at a limit."""
    began_s = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit_s)
            ended = str(process.returncode)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            ended = "ended at its limit"
    return {"s": round(time.perf_counter() - began_s, 3), "ended": ended, "said": said[-1500:]}


def ncu(book: Book) -> None:
    """Nsight Compute over one call of the same kernels, the start of Python and torch with it."""
    program = shutil.which("ncu")
    if program is None:
        book.keep("ncu", "program", {"error": "ncu is not on PATH"})
        return
    for name in Catalogue([]).names():
        task = Catalogue([]).task(name)
        largest = task.workloads_on("cuda", held_out=False)[-1]
        with tempfile.TemporaryDirectory(prefix="kernelgate-coach-") as scratch:
            Path(scratch, "reference.py").write_text(with_overrides(task.source, largest.overrides), encoding="utf-8")
            Path(scratch, "candidate.py").write_text(good(task, "cuda"), encoding="utf-8")
            Path(scratch, "once.py").write_text(ONCE, encoding="utf-8")
            for chosen in (None, *NCU_SETS):
                if book.left_s() < STEP_S:
                    book.keep("ncu", f"{name} {chosen}", {"ended": "no time was left"})
                    continue
                under = [] if chosen is None else [program, "--profile-from-start", "off", "--set", chosen]
                command = [*under, sys.executable, "once.py"]
                told = timed(command, Path(scratch), min(NCU_LIMIT_S, book.left_s()))
                book.keep("ncu", f"{name} {chosen or 'without'}", {"set": chosen or "without", **told})
                say(f"  ncu {name} {chosen or 'without'}: {told['s']} s, {told['ended']}")


def figures(found: dict[str, Any]) -> dict[str, int | float]:
    """Flat names → numbers; what was not run is left out."""
    tried = list(found.get("kernels", {}).values())
    faulty, healthy = [each for each in tried if each["kinds"]], [each for each in tried if not each["kinds"]]
    profiles = [each["profile"] for each in (*tried, *found.get("bundled", {}).values()) if "profile" in each]
    costs = [each["profile"] for each in found.get("bundled", {}).values() if "profile" in each]
    counted: dict[str, int | float] = {}
    if faulty:
        right = sum(each["right"] for each in faulty)
        counted |= {"kernels_total": len(faulty), "right_first": right, "right_first_share": right / len(faulty)}
    if healthy:
        counted |= {"healthy_total": len(healthy), "healthy_false": sum(not each["right"] for each in healthy)}
    if bad_ones := found.get("bad"):
        counted |= {"bad_total": len(bad_ones), "bad_right": sum(each["right"] for each in bad_ones.values())}
    for name in ("wall_s", "lease_s"):
        if seconds := [each[name] for each in costs if each[name] is not None]:
            counted[f"counters_{name}_median"] = statistics.median(seconds)
    if profiles:
        counted["reply_tokens_max"] = max(each["tokens"] for each in profiles)
    for chosen in NCU_SETS:
        runs = [each for each in found.get("ncu", {}).values() if each.get("set") == chosen]
        if seconds := [each["s"] for each in runs if each["ended"] == "0"]:
            counted[f"ncu_{chosen}_s"] = statistics.median(seconds)
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in counted.items()}


def slim(found: dict[str, Any]) -> Any:
    """What a measurement keeps: without the replies, which are long."""
    dropped = ("report", "last_report")
    return json.loads(
        json.dumps(found), object_hook=lambda one: {key: value for key, value in one.items() if key not in dropped}
    )


def with_a_server(book: Book, kind: str, parts: Sequence[str], only: Sequence[str]) -> None:
    """The parts that share one."""
    chosen = [case for case in CASES if (kind == "cuda" or case.on_cpu) and (not only or case.name in only)]
    with tempfile.TemporaryDirectory(prefix="kernelgate-coach-") as scratch:
        lay_out({case.task.name: case.task for case in chosen}.values(), Path(scratch, "tasks"))
        device = "cuda:0" if kind == "cuda" else "cpu"
        more = ("--tasks", str(Path(scratch, "tasks")))
        with stdio_server(Path(scratch), device=device, more=more) as server:
            server.greet()
            depth = DEPTH if takes_depth(server) else ""
            book.found |= {"device": device, "depth": depth}
            if "kernels" in parts:
                kernels(book, server, chosen, depth)
            if "bundled" in parts and not only:
                bundled_tasks(book, server, kind, depth)


def coach(book: Book, kind: str, parts: Sequence[str], only: Sequence[str]) -> None:
    """All that was asked for."""
    if {"kernels", "bundled"} & set(parts):
        with_a_server(book, kind, parts, only)
    if "ncu" in parts and kind == "cuda" and not only:
        ncu(book)
    if "bad" in parts:
        bad(book, kind, only)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Does a profile name the one fault of kernels that have one?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", action="append", default=[], choices=NAMES, metavar="NAME")
    parser.add_argument("--part", action="append", default=[], choices=PARTS, help="may be repeated; else all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the whole run")
    parser.add_argument("--write", action="store_true", help="write coach.json (of a CPU: coach_cpu.json)")
    options = parser.parse_args(arguments)
    book = Book(options.out, options.seconds, goes_on=bool(options.part or options.only))
    try:
        with limited(int(options.seconds) + 3):
            coach(book, options.device, options.part or PARTS, options.only)
    except TooLong as error:
        book.found["ended"] = str(error)
    book.write()
    say(json.dumps(book.found["figures"]))
    if options.write:
        on_gpu = options.device == "cuda"
        command = f"python tests/gpu/coach_run.py OUT.json --device {options.device} --write"
        raw = without_places(slim(book.found))
        name = "coach" if on_gpu else "coach_cpu"
        write_measurement(name, book.found["figures"], raw, on_gpu=on_gpu, command=command)


if __name__ == "__main__":
    main(sys.argv[1:])

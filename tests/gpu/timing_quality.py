"""How good the timing is on one device: `python tests/gpu/timing_quality.py OUT.json [--step NAME[:SECONDS[:PART]]] …`

All calls go through a real supervisor, each in a fresh process of its own. OUT.json is written after each call, so a
time limit loses nothing; a step that fails is written down and the next goes on. `--device cpu` runs what a CPU can
show. `--write` pools one or several OUT.json into docs/measurements/timing_quality.json.

aa           the reference of each bundled task as its own candidate: how often is it told apart? (part: a task)
sensitivity  so many percent more work: how often is it called slower? (part: the percent)
repeat       the speed-up of one candidate over fresh supervisors (part: softmax, softmax_small)
cost         lease seconds of quick and precise, and how often precise overturns quick (part: a task)
against      the same calls by other tools' methods (part: a kernel; only on a GPU)
bad          what is said of candidates and moments that are bad in one way each (part: one of them)
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gpu_path as gpu_path  # before the package

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_calls import Gpu, bundled, first_gpu, judge, known_good
from gpu_host import TooLong, limited
from measurement import FOLDER, MeasuredHost, MeasurementFile, measured_host
from timing_candidates import LOADS, PERCENTS, bad, differing, more_rows, more_rows_task, repeated
from timing_figures import figures, pooled

from kernelgate.server.calibrating import CALIBRATE_LOOKS, MOST_CALIBRATIONS, QUIET_FLOOR
from kernelgate.server.installed import package_version
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Task
from kernelgate.tools.kit.timing_report import TimingFacts
from kernelgate.tools.kit.wire import DeviceRef, WorkerReply
from kernelgate.tools.precise_time import LEAST_FLOOR, noise_floor

AA_RUNS, SENSITIVITY_RUNS, SUPERVISORS = 100, 20, 10
"""At most, of each part."""
CAP_S = 60.0
BAD_CAP_S = 30.0
GRACE_S = 20  # a step is stopped so long behind its time: the call under way may end
STARTING_S = 8.0
"""A process that imports torch, starts CUDA and draws inputs."""
KERNELS = ("softmax_4096", "matmul_2048_fp16", "add_64mb", "add_64kb")
CLOCKS = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w", "throttle_reasons", "load_1m")
Keep = Callable[..., None]
"""Takes what one call showed, by name."""


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)  # noqa: T201  the progress of this program


class Session:
    """A supervisor that is started when it is first needed, and each task's noise floor."""

    def __init__(self, device: DeviceRef) -> None:
        self.device = device
        self.floors: dict[str, float] = {}
        self._gpu: Gpu | None = None
        self._built: set[tuple[str, str]] = set()
        self._leases = tempfile.TemporaryDirectory(prefix="kernelgate-leases-")

    @property
    def gpu(self) -> Gpu:
        if self._gpu is None:
            # A CPU that others measure on as well is not waited for.
            lease_dir = Path(self._leases.name) if self.device.kind == "cpu" else None
            self._gpu = Gpu(self.device, lease_dir=lease_dir)
        return self._gpu

    def renew(self) -> None:
        """End the supervisor; the next call starts another, with empty caches."""
        opened, self._gpu = self._gpu, None
        self._built.clear()
        if opened is not None:
            opened.close()

    def close(self) -> None:
        self.renew()
        self._leases.cleanup()

    def build(self, task: Task, source: str) -> None:
        """Compile a candidate that this supervisor has not seen, as the ladder would."""
        if (task.name, source) not in self._built:
            self.gpu.call("compile", task, source, cap_s=CAP_S)
            self._built.add((task.name, source))

    def floor(self, task: Task) -> float:
        """As the server finds it around the first precise timings of a task; one for all supervisors."""
        if task.name not in self.floors:
            found = [self._measured_floor(task)]
            while found[-1] > QUIET_FLOOR and len(found) < MOST_CALIBRATIONS:
                found.append(self._measured_floor(task))
            self.floors[task.name] = min(found)
        return self.floors[task.name]

    def _measured_floor(self, task: Task) -> float:
        plan = {"looks": list(CALIBRATE_LOOKS)}
        report, reply = self.gpu.judged("precise_time", task, known_good(task), cap_s=CAP_S, **plan)
        if report.ratio is None:
            raise RuntimeError(f"no noise floor of {task.name}: {report.verdict}: {report.summary}\n{reply.log}")
        floor = noise_floor(TimingFacts.model_validate_json(json.dumps(reply.facts)))
        say(f"  noise floor of {task.name}: {floor:.4f}, lease {reply.lease_s:.2f} s")
        return floor

    def call(self, tool: str, task: Task, source: str, cap_s: float = CAP_S) -> dict[str, Any]:
        """What a tool says of a candidate and what that took. A fault of ours is written down, not raised."""
        begun_s = time.perf_counter()
        try:
            self.build(task, source)
            plan = {"floor": self.floor(task)} if tool == "precise_time" else {}
            begun_s = time.perf_counter()
            report, reply = self.gpu.judged(tool, task, source, cap_s=cap_s, **plan)
        except (RuntimeError, TimeoutError) as error:
            return {"tool": tool, "fault": f"{type(error).__name__}: {error}"[:2000]}
        told = seen(report, reply) | {"tool": tool, "s": round(time.perf_counter() - begun_s, 4)}
        if tool == "precise_time":
            told["least_floor_verdict"] = str(judge(tool, reply, {"floor": LEAST_FLOOR}).verdict)
        return told


def seen(report: Any, reply: WorkerReply) -> dict[str, Any]:
    """Verdict, sentence, ratios and seconds of a call."""
    told: dict[str, Any] = {"verdict": str(report.verdict), "code": report.code, "summary": report.summary}
    told |= {name: round(getattr(reply, name), 4) for name in ("lease_s", "house_s", "prepare_s", "wall_s")}
    told |= {"exit": reply.exit.kind, "clocks": {k: v for k, v in reply.observation.items() if k in CLOCKS}}
    told["processes"] = getattr(report, "processes", 1)
    if getattr(report, "ratio", None) is not None:
        told |= {"ratio": report.ratio, "low": report.low, "high": report.high, "floor": getattr(report, "floor", 0.0)}
        kept = {"workload", "ratio", "low", "high", "outside_ratio", "candidate_us", "baseline_us", "pairs"}
        told["workloads"] = [each.model_dump(include=kept) for each in report.workloads]
    return told


def rounds(seconds: float, most: int) -> Iterator[int]:
    """Count while there is time for another as long as the longest so far; the first is always had.

    The first starts and calibrates things: it stands for the others only until there are any.
    """
    end_s, longest_s = time.monotonic() + seconds, 0.0
    for number in range(most):
        begun_s = time.monotonic()
        if number and begun_s + longest_s > end_s:
            return
        yield number
        took_s = time.monotonic() - begun_s
        longest_s = took_s if number < 2 else max(longest_s, took_s)


def shared(parts: Sequence[str], seconds: float) -> Iterator[tuple[str, float]]:
    """Each part with its share of the time that is left."""
    end_s = time.monotonic() + seconds
    for index, part in enumerate(parts):
        yield part, max(0.0, end_s - time.monotonic()) / (len(parts) - index)


def aa(session: Session, parts: Sequence[str], seconds: float, keep: Keep) -> None:
    for part, share_s in shared(parts, seconds):
        task = bundled(part)
        for _ in rounds(share_s, AA_RUNS):
            keep(part=part, **session.call("precise_time", task, known_good(task)))


def sensitivity(session: Session, parts: Sequence[str], seconds: float, keep: Keep) -> None:
    """The percents take turns: a step that ends early has some runs of each."""
    task = more_rows_task()
    for _ in rounds(seconds, SENSITIVITY_RUNS):
        for part in parts:
            keep(part=part, **session.call("precise_time", task, more_rows(part)))


def repeat(session: Session, parts: Sequence[str], seconds: float, keep: Keep) -> None:
    candidates = repeated(session.device.kind)
    for number in rounds(seconds, SUPERVISORS):
        session.renew()
        for part in parts:
            keep(part=part, supervisor=number, **session.call("precise_time", *candidates[part]))


def cost(session: Session, parts: Sequence[str], seconds: float, keep: Keep) -> None:
    """As a candidate climbs: built and checked first. One that fails a rung is asked no further."""
    for part, share_s in shared(parts, seconds):
        task = bundled(part)
        candidates = list(differing(task, session.device.kind).items())
        for number in rounds(share_s, len(candidates)):
            name, source = candidates[number]
            for tool in ("check_correctness", "quick_time", "precise_time"):
                told = session.call(tool, task, source)
                keep(part=part, candidate=name, **told)
                if "fault" in told or (told["verdict"] != "correct" and told.get("ratio") is None):
                    break


def against(session: Session, parts: Sequence[str], seconds: float, keep: Keep) -> None:
    """A process for each kernel; its readings are kept as they come."""
    if session.device.kind == "cpu":
        raise RuntimeError("the other methods need a GPU")
    session.renew()  # its referee would stand beside them on the device
    for part, share_s in shared(parts, seconds):
        readings_s = max(share_s / 2, share_s - STARTING_S)
        command = [sys.executable, str(Path(__file__).with_name("timing_methods.py")), part, str(readings_s)]
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:  # fmt: skip
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.startswith("{"):  # the profiler says things of its own
                        keep(part=part, **json.loads(line))
            finally:
                process.kill()
            if process.wait() not in (0, -9):
                errors.seek(0)
                keep(part=part, fault=errors.read()[-2000:])


def bad_ones(session: Session, parts: Sequence[str], seconds: float, keep: Keep) -> None:
    cases = bad(session.device.kind)
    for number in rounds(seconds, len(parts)):
        task, source, tools = cases[parts[number]]
        if parts[number] == "loaded":
            loaded(session, task, source, keep)
            continue
        for tool in tools:
            keep(part=parts[number], **session.call(tool, task, source, cap_s=BAD_CAP_S))


def loaded(session: Session, task: Task, source: str, keep: Keep) -> None:
    """The reference as its own candidate, before, while and after another process loads the device."""
    keep(part="loaded", moment="before", **session.call("precise_time", task, source))
    command = [sys.executable, "-c", LOADS[session.device.kind]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "here\n":
                raise RuntimeError("the process that loads the device could not start")
            while process.poll() is None:
                keep(part="loaded", moment="while", **session.call("precise_time", task, source))
        finally:
            process.kill()
    keep(part="loaded", moment="after", **session.call("precise_time", task, source))


@dataclass(frozen=True)
class Step:
    """What is run, for how long where nobody says, and its parts."""

    run: Callable[[Session, Sequence[str], float, Keep], None]
    seconds: float
    parts: tuple[str, ...]


TASKS = tuple(Catalogue([]).names())
STEPS = {
    "aa": Step(aa, 1800, TASKS),
    "sensitivity": Step(sensitivity, 150, PERCENTS),
    "repeat": Step(repeat, 180, ("softmax", "softmax_small")),
    "cost": Step(cost, 240, TASKS),
    "against": Step(against, 200, KERNELS),
    "bad": Step(bad_ones, 180, ("grows", "input_view", "empty", "seconds", "hoards", "loaded")),
}


@dataclass(frozen=True)
class Asked:
    """One `--step`."""

    name: str
    seconds: float
    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Asked":
        """NAME[:SECONDS[:PART]]; raises ValueError."""
        name, _, rest = text.partition(":")
        seconds, _, part = rest.partition(":")
        if name not in STEPS or (part and part not in STEPS[name].parts):
            parts = ", ".join(STEPS[name].parts) if name in STEPS else ""
            raise argparse.ArgumentTypeError(f"{text}: steps are {', '.join(STEPS)}{parts and '; parts ' + parts}")
        step = STEPS[name]
        return cls(name, float(seconds) if seconds else step.seconds, (part,) if part else step.parts)


def host_of(device: DeviceRef) -> MeasuredHost:
    """This host; of a GPU what nvidia-smi says."""
    host = measured_host(on_gpu=False)
    if device.kind == "cpu":
        return host
    command = ["nvidia-smi", f"--id={device.uid}", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    name, driver = (word.strip() for word in told.splitlines()[0].split(","))
    return host.model_copy(update={"device": name, "driver": driver})


def run(device: DeviceRef, out: Path, asked: Sequence[Asked], command: str) -> None:
    """Each step within its time; what it showed is written after each call."""
    found: dict[str, Any] = {
        "date_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "command": command,
        "host": host_of(device).model_dump(), "steps": [], "floors": {}, "runs": [],
    }  # fmt: skip
    session = Session(device)
    out.parent.mkdir(parents=True, exist_ok=True)

    def write() -> None:
        found["floors"] = session.floors
        lines = ",\n".join(json.dumps(each) for each in found["runs"])
        head = json.dumps({**found, "runs": None, "figures": figures(found["runs"])}, indent=1)
        # In one go: a limit that ends the program meanwhile leaves the file before.
        out.with_suffix(".part").write_text(head.replace('"runs": null', f'"runs": [\n{lines}\n ]'), encoding="utf-8")
        out.with_suffix(".part").replace(out)

    for each in asked:
        say(f"{each.name} ({', '.join(each.parts)}): {each.seconds:g} s")
        begun_s, name = time.perf_counter(), each.name

        def keep(name: str = name, **told: Any) -> None:
            found["runs"].append({"step": name, "file": 0, **told})
            words = [told.get(word) for word in ("part", "candidate", "moment", "tool", "method", "value")]
            said = told.get("fault") or (told.get("verdict") and f"{told['verdict']}: {told['summary']}") or ""
            say(f"  {' '.join(str(word) for word in words if word is not None)} {said[:200]}")
            write()

        told = {"step": each.name, "seconds": each.seconds, "parts": each.parts, "ended": "done"}
        try:
            with limited(int(each.seconds) + GRACE_S):
                STEPS[each.name].run(session, each.parts, each.seconds, keep)
        except Exception as error:  # noqa: BLE001  written down; the next one goes on
            told["ended"] = f"{type(error).__name__}: {error}"[:2000]
            say("  " + (str(error) if isinstance(error, TooLong) else traceback.format_exc()))
            with contextlib.suppress(Exception):
                session.renew()  # what runs too long may still be at work
        found["steps"].append({**told, "s": round(time.perf_counter() - begun_s, 1)})
        write()
    session.close()


def measurement(files: Sequence[dict[str, Any]]) -> MeasurementFile:
    """One measurement from what several calls of this program wrote on hosts alike; raises ValueError."""
    from write_figures import without_places  # where files are pooled only: it brings an MCP client

    hosts = [MeasuredHost.model_validate(each["host"]) for each in files]
    if any(host != hosts[0] for host in hosts):
        raise ValueError("these files are of different hosts or versions: their runs are not pooled")
    host = hosts[0]
    if host.kernelgate == "absent":  # it ran from a checkout
        host = host.model_copy(update={"kernelgate": package_version("kernelgate")})
    runs = pooled(files)
    return MeasurementFile(
        name="timing_quality", date_utc=max(each["date_utc"] for each in files),
        command="; ".join(each["command"] for each in files), host=host, figures=figures(runs),
        raw=without_places({
            "floors": [each["floors"] for each in files], "steps": [each["steps"] for each in files],
            "runs": [slim(run) for run in runs],
        }),
    )  # fmt: skip


def slim(run: dict[str, Any]) -> dict[str, Any]:
    """What figures are made of; of a run of the many alike no more."""
    if run["step"] not in ("aa", "sensitivity") or "ratio" not in run:
        return run
    dropped = {"tool", "code", "summary", "exit", "clocks", "house_s", "prepare_s", "wall_s", "s", "workloads"}
    kept = {name: round(v, 6) if isinstance(v, float) else v for name, v in run.items() if name not in dropped}
    return kept | {"workloads": [{"ratio": round(w["ratio"], 6), "pairs": w["pairs"]} for w in run["workloads"]]}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="How good the timing is, on one device.")
    parser.add_argument("out", type=Path, nargs="+", help="written by a run; with --write alone, read")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--step", action="append", default=[], type=Asked.of, metavar="NAME[:SECONDS[:PART]]")
    parser.add_argument("--write", action="store_true", help="pool the files into docs/measurements")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where --write writes")
    options = parser.parse_args(arguments)
    if options.step or not options.write:
        device = DeviceRef(kind="cpu") if options.device == "cpu" else first_gpu()
        if device is None:
            raise SystemExit("nvidia-smi lists no GPU; --device cpu runs what a CPU can show")
        words = [word for word in arguments if word != "--write" and word not in map(str, options.out)]
        command = " ".join(["python tests/gpu/timing_quality.py OUT.json", *words])
        run(device, options.out[0], options.step or [Asked.of(name) for name in STEPS], command)
    if options.write:
        written = measurement([json.loads(path.read_text(encoding="utf-8")) for path in options.out])
        (options.folder / "timing_quality.json").write_text(written.model_dump_json(indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

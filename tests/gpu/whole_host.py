"""Everything that an NVIDIA GPU is asked, on one host: `python tests/gpu/whole_host.py DIR [--kernelbench CHECKOUT]`

Runs the parts below one after the other, each in a process of its own with a time limit; one that fails is written down
and the next goes on. DIR gets what they print and write, and `whole_host.json`: of each part its exit status and
seconds. The measurements in docs/measurements are written anew. `--only PART` (may be repeated) runs some parts only.
Ends with 1 if a part failed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "gpu"
TAIL_CHARS = 2_000
"""So much of what a part that failed printed last is shown."""


class Part(NamedTuple):
    """One process: its arguments behind `python`, its limit, and where in DIR its output goes."""

    name: str
    seconds: int
    words: tuple[str, ...]
    printed: str


def parts(out: Path, checkout: str) -> tuple[Part, ...]:
    """In the order in which they run; those of a KernelBench checkout only where there is one."""

    def program(name: str, seconds: int, *words: str) -> Part:
        return Part(name, seconds, (str(HERE / f"{name}.py"), *words), f"{name}.txt")

    kernelbench = (
        program("kernelbench_run", 400, checkout, str(out / "kernelbench.json")),
        program("kernelbench_evaluator", 400, checkout, str(out / "evaluator.json")),
    )
    return (
        Part("tests", 500, ("-m", "pytest", "-q", "-m", "gpu", str(ROOT / "tests")), "tests.txt"),
        program("gpu_host", 500, "--out", str(out)),
        program("server_run", 500, str(out / "server_run.json")),
        Part("demo", 200, ("-m", "kernelgate.server", "demo", "--device", "cuda"), "demo.txt"),
        *(kernelbench if checkout else ()),
        program("write_figures", 60, str(out)),
        program("integrity_run", 400, str(out / "integrity_raw.json"), "--write"),
        program("coach_run", 400, str(out / "coach_raw.json"), "--write"),
        program(
            "ladder_run",
            2700,
            str(out / "ladder_raw.json"),
            "--seconds",
            "2600",
            "--data",
            str(out / "ladder"),
            "--write",
            *(("--kernelbench", checkout) if checkout else ()),
        ),
        program("timing_quality", 2400, str(out / "timing_quality_raw.json"), "--write"),
    )


def run(chosen: Sequence[Part], out: Path) -> bool:
    """One after the other; whether all of them ended well."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / ".dev"), os.environ.get("PYTHONPATH")]))}
    found: dict[str, dict[str, object]] = {}
    for part in chosen:
        begun_s = time.perf_counter()
        path = out / part.printed
        with path.open("w", encoding="utf-8") as printed:
            try:
                done = subprocess.run(
                    [sys.executable, *part.words], stdout=printed, stderr=subprocess.STDOUT, env=env, cwd=ROOT,
                    timeout=part.seconds, check=False,
                )  # fmt: skip
                ended = f"exit {done.returncode}"
            except subprocess.TimeoutExpired:
                ended = f"longer than {part.seconds} s"
        found[part.name] = {"ended": ended, "seconds": round(time.perf_counter() - begun_s, 1)}
        (out / "whole_host.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        shown = "" if ended == "exit 0" else f"\n{path.read_text(encoding='utf-8')[-TAIL_CHARS:]}"
        sys.stdout.write(f"{part.name}: {ended} in {found[part.name]['seconds']} s{shown}\n")
        sys.stdout.flush()
    return all(each["ended"] == "exit 0" for each in found.values())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Everything that an NVIDIA GPU is asked, on one host.")
    parser.add_argument("out", type=Path, help="folder for what the parts print and write")
    parser.add_argument("--kernelbench", default="", metavar="CHECKOUT")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    options = parser.parse_args(arguments)
    known = parts(options.out.resolve(), options.kernelbench)
    if unknown := set(options.only) - {part.name for part in known}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in known)}")
    options.out.mkdir(parents=True, exist_ok=True)
    if not run([part for part in known if not options.only or part.name in options.only], options.out.resolve()):
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])

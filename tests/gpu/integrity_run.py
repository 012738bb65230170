"""The whole corpus on one device: `python tests/gpu/integrity_run.py OUT.json [--device cpu] [--only NAME]`.

Every hostile candidate that the device can show is taken up to the rung where it must fail at the latest, every legal
one up to a first timing; the reference of each bundled task is checked as its own candidate, for what a check costs.
Writes OUT.json after each candidate; `--write` makes a file of docs/measurements of it.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import gpu_path as gpu_path  # before the package

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "corpus"))

from cases import HONEST, HOSTILE, NEVER, Case, cases
from court import Court, Step
from gpu_calls import first_gpu, known_good
from measurement import write_measurement

from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tools.kit.wire import DeviceRef

ACCEPTED = NEVER | {"built", "correct"}
"""A cheat that ends so was let through."""
CHECKS = 3
"""Of each bundled task; the first one pays for building its reference."""


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)  # noqa: T201  the progress of this program


def told(steps: list[Step]) -> dict[str, Any]:
    last = steps[-1]
    return {
        "rung": last.tool, "verdict": last.verdict, "code": last.code, "summary": last.summary,
        "lease_s": round(sum(step.reply.lease_s for step in steps), 4),
    }  # fmt: skip


def tried(court: Court, case: Case) -> dict[str, Any]:
    try:
        return told(court.climb(case))
    except Exception as error:  # noqa: BLE001  written down; the next one goes on
        return {"fault": f"{type(error).__name__}: {error}"[:2000]}


def as_it_must(case: Case, found: dict[str, Any]) -> bool:
    """Hostile: one of the outcomes that are right. Legal: passed, and timed without suspicion."""
    if "fault" in found:
        return False
    if case.code:
        return case.accepts(found["verdict"], found["code"])
    return found["verdict"] in NEVER | {"undecided", "clearly_slower"}


def check_leases(court: Court) -> list[float]:
    """Lease seconds of a check of each bundled task's own reference, compiled before; the first of each left out."""
    leases: list[float] = []
    for name in Catalogue([]).names():
        task = Catalogue([]).task(name)
        for number in range(1 + CHECKS):
            files = {"candidate.py": f"{known_good(task)}\n# {number}\n"}
            court.judged("compile", task, files, cap_s=60.0)
            step = court.judged("check_correctness", task, files, cap_s=60.0)
            say(f"  check of {name}: {step.verdict}, lease {step.reply.lease_s:.3f} s")
            leases += [step.reply.lease_s] if number else []
    return leases


def figures(found: dict[str, Any]) -> dict[str, int | float]:
    """Flat names → numbers."""
    hostile, honest = found["hostile"].values(), found["honest"].values()
    missed = [each for each in hostile if not each["right"]]
    counted: dict[str, int | float] = {
        "cheats_total": len(hostile), "cheats_accepted": sum(each.get("verdict") in ACCEPTED for each in missed),
        "cheats_named_otherwise": sum("fault" not in each and each["verdict"] not in ACCEPTED for each in missed),
        "faults": sum("fault" in each for each in (*hostile, *honest)),
        "honest_total": len(honest), "honest_rejected": sum(not each["right"] for each in honest),
    }  # fmt: skip
    if found.get("check_lease_s"):
        counted["check_lease_s_median"] = round(statistics.median(found["check_lease_s"]), 4)
        counted["check_lease_s_max"] = round(max(found["check_lease_s"]), 4)
    return counted


def corpus(device: DeviceRef, out: Path, only: list[str]) -> dict[str, Any]:
    """All that the device can show; what was found, also written to a file after each."""
    court = Court(device)
    elsewhere = "cpu" if device.kind == "cuda" else "gpu"
    found: dict[str, Any] = {"device": device.kind, "hostile": {}, "honest": {}}
    for kind, folder in (("hostile", HOSTILE), ("honest", HONEST)):
        for case in cases(folder):
            if case.device == elsewhere or (only and case.name not in only):
                continue
            asked = case if case.code else dataclasses.replace(case, rung="quick")
            outcome = tried(court, asked)
            found[kind][case.name] = {"class": case.code, **outcome, "right": as_it_must(asked, outcome)}
            said = outcome.get("fault") or f"{outcome['verdict']} ({outcome['code']}): {outcome['summary']}"
            say(f"  {'right' if found[kind][case.name]['right'] else 'WRONG'} {case.name}: {said[:300]}")
            out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if not only:
        found["check_lease_s"] = check_leases(court)
    found["figures"] = figures(found)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    court.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole corpus of hostile and of legal candidates on one device.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", action="append", default=[], help="this candidate only; may be repeated")
    parser.add_argument("--write", action="store_true", help="write integrity.json (of a CPU: integrity_cpu.json)")
    options = parser.parse_args()
    device = DeviceRef(kind="cpu") if options.device == "cpu" else first_gpu()
    if device is None:
        raise SystemExit("nvidia-smi lists no GPU; --device cpu runs what a CPU can show")
    found = corpus(device, options.out, options.only)
    say(json.dumps(found["figures"]))
    if options.write:
        name = "integrity" if device.kind == "cuda" else "integrity_cpu"
        command = f"python tests/gpu/integrity_run.py OUT.json --device {options.device} --write"
        write_measurement(name, found["figures"], found, on_gpu=device.kind == "cuda", command=command)


if __name__ == "__main__":
    main()

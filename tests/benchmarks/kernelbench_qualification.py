"""Which problems of a KernelBench checkout are refused, and how long judging all takes: kernelbench_qualification.json.

`python tests/benchmarks/kernelbench_qualification.py CHECKOUT` on the CPU, at small sizes. One child for
each problem, with a limit on its time. What was found is kept in a file beside the scratch of the host and taken up
again by the next run, so that an interrupted run loses nothing; `--anew NAME …` tries problems again.
"""

import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from measurement import write_measurement

from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Task
from kernelgate.tasks.qualify import FACTS_VERSION, Qualification, judge_task
from kernelgate.tools.kit import house
from kernelgate.tools.kit.house import NoPlan, qualify
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import reference
from kernelgate.tools.worker.bench import House, RefereeBench
from kernelgate.tools.worker.control import Busy
from kernelgate.tools.worker.lending import MemfdLender
from kernelgate.tools.worker.memory import DoesNotFit
from kernelgate.tools.worker.reference import TaskError
from kernelgate.tools.worker.timing import apply_policy

COMMAND: Final = "python tests/benchmarks/kernelbench_qualification.py CHECKOUT"
LIMIT_S: Final = 90.0
SMALL_BYTES: Final = 4 << 20
"""Inputs and outputs of the larger of the two sizes that a problem gets here; a user's CPU gets up to 64 MiB."""
KEPT: Final = Path(tempfile.gettempdir(), f"kernelgate_kernelbench_qualification_v{FACTS_VERSION}.json")


class Nobody:
    """`Control` where no candidate runs and nobody waits."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """Nothing."""

    def stop(self) -> Busy:
        """Nothing was busy."""
        return Busy()

    def proceed(self) -> None:
        """Nothing."""


def qualified(task: Task) -> Qualification:
    """As a referee does it, in this process; at its one small size where a problem has no tiny one."""
    device = DeviceRef(kind="cpu")
    apply_policy(task.precision, device.threads)
    failure = Qualification()
    for sized in (made_small(task), only_small(task)):
        try:
            held = House(reference.hold(sized, "cpu", "cpu"))
            return qualify(RefereeBench(sized, device, held, MemfdLender(), Nobody(), None), NoPlan())
        except DoesNotFit as error:
            failure = Qualification(
                error=str(error), bytes_needed=error.needed_bytes, bytes_allowed=error.allowed_bytes
            )
        except TaskError as error:
            failure = Qualification(error=str(error))
    return failure


def made_small(task: Task) -> Task:
    """The task with a smaller `small`: what decides is how its answers behave, not how many there are."""
    sizes = tuple(w.model_copy(update={"shrink_to_bytes": min(w.shrink_to_bytes, SMALL_BYTES)}) for w in task.workloads)
    return task.model_copy(update={"workloads": sizes})


def only_small(task: Task) -> Task:
    """At the size that a CPU gets, alone."""
    return task.model_copy(update={"workloads": tuple(w for w in task.workloads if w.name == "small")})


def child(task: Task, line: Connection) -> None:
    """What a child does; its output is nobody's."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    line.send(qualified(task).model_dump_json())


def tried(task: Task) -> dict[str, Any]:
    """A problem in a child of its own: judged, out of time, or gone."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    began_s = time.perf_counter()
    process = context.Process(target=child, args=(task, theirs))
    process.start()
    theirs.close()
    text = ""
    try:
        text = mine.recv() if mine.poll(LIMIT_S) else ""
        end = "" if text else f"it was not done within {LIMIT_S:g} s"
    except EOFError:
        end = "its process ended"
    process.kill()
    process.join()
    found: dict[str, Any] = {"s": round(time.perf_counter() - began_s, 3)}
    if not text:
        return {**found, "end": end}
    facts = Qualification.model_validate_json(text)
    fitness = judge_task(task, facts)
    outputs = [output for one in facts.references for output in one.outputs]
    return {
        **found,
        "end": "fit" if fitness.fit else "refused",
        "problems": list(fitness.problems),
        "mutants": sorted({p.split(" ")[1] for p in fitness.problems if p.startswith("mutant ")}),
        "distributions": list(fitness.distributions),
        "left_out": list(fitness.left_out),
        "notes": list(fitness.notes),
        "calibrated": sum(output.source == "calibrated" for output in outputs),
        "outputs": len(outputs),
        "largest_rtol": max((output.rtol for output in outputs), default=0.0),
    }


def main(checkout: str, *more: str) -> None:
    """Try what was not tried yet, and write."""
    house.EXTRAS_LIMIT_S = LIMIT_S / 6  # type: ignore[misc]  # two cores that others use: the slow ones get fewer kinds of inputs
    found: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in more[1:] if more[:1] == ("--anew",) else ():
        found.pop(name, None)
    entries = [e for e in Catalogue(kernelbench=Path(checkout)).entries() if e.group.startswith("kernelbench")]
    for entry in entries:
        if entry.name in found:
            continue
        found[entry.name] = tried(entry.task) if entry.task else {"s": 0.0, "end": str(entry.unavailable)}
        KEPT.write_text(json.dumps(found, indent=1))
        sys.stdout.write(f"{entry.name}: {found[entry.name]['s']} s, {found[entry.name]['end']}\n")
        sys.stdout.flush()
        gc.collect()
    by_end = Counter(one["end"] for one in found.values())
    mutants = Counter(mutant for one in found.values() for mutant in one.get("mutants", ()))
    judged = [one for one in found.values() if one["end"] in ("fit", "refused")]
    figures: dict[str, int | float] = {
        "kernelbench_tasks": len(entries),
        "kernelbench_tasks_tried": len(judged),
        "kernelbench_tasks_fit": by_end["fit"],
        "kernelbench_tasks_refused": by_end["refused"],
        "kernelbench_tasks_refused_for_a_mutant": sum(bool(one.get("mutants")) for one in judged),
        "qualification_s_total": round(sum(one["s"] for one in found.values()), 1),
        "qualification_s_max": max(one["s"] for one in found.values()),
        **{f"mutant_{name}_passed_tasks": count for name, count in sorted(mutants.items())},
    }
    raw: Any = {"limit_s": LIMIT_S, "small_bytes": SMALL_BYTES, "problems": found}
    write_measurement("kernelbench_qualification", figures, raw, command=COMMAND)


if __name__ == "__main__":
    main(*sys.argv[1:])

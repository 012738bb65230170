"""What is told of hidden workloads: never what a candidate could have made up after it had seen one. Pure.

A candidate that runs on a hidden shape can print it, raise it, name an exception after it, leave with it as its exit
status, or claim it as a time. So nothing that it wrote goes out of a call in which it may have seen one: its output is
not kept, and a failure there is told by verdict, code and an exception type out of a closed list. Hidden workloads are
run behind all public ones, so text about a public one is from before, and stays.
"""

import builtins
import re
from collections.abc import Iterable
from typing import Final

from kernelgate.budget.model import Verdict
from kernelgate.tasks.model import DeviceKind, Task
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.kit.failures import Failure

OUTPUT_NOT_KEPT: Final = "Its output is not kept: it may have seen hidden shapes."
OUR_FAULT: Final = "it failed on our side with hidden shapes at work, of which nothing is told; the server's log has it"
KNOWN_EXCEPTIONS: Final = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
) | {"OutOfMemoryError", "AcceleratorError", "CompilationError", "OutOfResources"}
"""Of python, torch and triton. Any other name is the candidate's own text."""
_ENDED: Final = {
    Verdict.timed_out: "it did not finish in time and was stopped",
    Verdict.out_of_memory: "it ran out of memory",
    Verdict.suspicious: "it wrote on the private channel of its process",
    Verdict.crashed: "its process ended before it answered",
}
"""Failures whose sentences carry what came from the candidate; those of wrong answers are made of our own words."""


def exist_on(task: Task, kind: DeviceKind) -> bool:
    """Whether a task has hidden workloads on a kind of device."""
    return any(workload.held_out for workload in task.workloads_on(kind, held_out=True))


def counted(task: Task, kind: DeviceKind) -> str:
    """How many workloads run on a kind of device: `2 public workloads and 1 hidden one`."""
    public = len(task.workloads_on(kind, held_out=False))
    unseen = len(task.workloads_on(kind, held_out=True)) - public
    also = f" and {unseen} hidden one{'' if unseen == 1 else 's'}" if unseen else ""
    return f"{public or 'no'} public workload{'' if public == 1 else 's'}{also}"


def untold(failure: Failure, fault: Fault | None, where: str) -> Failure:
    """A failure of a candidate that may have seen hidden inputs, without its words.

    Args:
        failure: as it would be told of a public workload.
        fault: what the candidate's process did, where that is known.
        where: public name of the hidden workload, `held_out_1`; empty where nobody knows how far it came.
    """
    if failure.verdict not in _ENDED:
        return failure
    said = _ENDED[failure.verdict]
    if failure.verdict is Verdict.crashed and fault is not None and fault.kind == "raised":
        said = f"it raised {_exception_type(fault)}"
    place = f"on {where}, a shape that it was not shown" if where else "in a call with hidden shapes"
    return failure._replace(summary=f"{said} {place}; no more is told of those: make it right for every size")


def _exception_type(fault: Fault) -> str:
    name = fault.error.partition(":")[0]
    return name if name in KNOWN_EXCEPTIONS else "an exception of its own"


def fault_told(fault: str, task: Task, kind: DeviceKind, *, seen: bool) -> str:
    """A fault of ours as the client may read it. With `seen`, a process that may write its text had hidden inputs."""
    return OUR_FAULT if seen or _names_one(fault, task, kind) else fault


def problems_told(problems: Iterable[str], task: Task, kind: DeviceKind) -> tuple[str, ...]:
    """Why a task does not qualify, as an agent may read it; its user has the same in full from the command line."""
    if not exist_on(task, kind):
        return tuple(problems)
    untold_one = f"something is wrong on a hidden workload; the command `kernelgate tasks check {task.name}` says what"
    told = (untold_one if _names_one(text, task, kind) else text.partition("\n")[0] for text in problems)
    return tuple(dict.fromkeys(told))


def _names_one(text: str, task: Task, kind: DeviceKind) -> bool:
    """Sentences of referee and qualification say `workload NAME`; behind it may stand sizes and values."""
    names = [re.escape(w.name) for w in task.workloads_on(kind, held_out=True) if w.held_out]
    return bool(names) and re.search(rf"\bworkload ({'|'.join(names)})\b", text) is not None

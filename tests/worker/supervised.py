"""What the supervisor's tests share: requests for the fake parts, and a runner over them."""

import itertools
from pathlib import Path
from typing import Any

import anyio

from kernelgate.tasks.model import Candidate, Task, Workload
from kernelgate.tools.kit.runner import SupervisorOptions, SupervisorRunner
from kernelgate.tools.kit.wire import DeviceRef, WorkerRequest

CPU = DeviceRef(kind="cpu")
TASK = Task(name="t", title="T", group="tests", source="", workloads=(Workload(name="w"),))
_ids = itertools.count(1)


def make_request(
    state_dir: Path, source: str | None, *ask: str, cap_s: float = 20.0, procedure: str = "check", **plan: Any
) -> WorkerRequest:
    """A request whose conductor calls these functions of the source."""
    files = {} if source is None else {"candidate.py": source}
    return WorkerRequest(
        request_id=next(_ids),
        procedure=procedure,
        task=TASK,
        files=files,
        digest=Candidate(files=files).digest if files else "",
        plan={"ask": list(ask), **plan},
        device=CPU,
        lease=procedure != "compile",
        cap_s=cap_s,
        state_dir=str(state_dir),
    )


def make_runner(state_dir: Path, **options: Any) -> SupervisorRunner:
    """A runner over the fake parts, with leases of its own."""
    folder = str(Path(__file__).parent)
    chosen = {"parts": "fake_parts", "python_path": (folder,), "lease_dir": state_dir / "leases", **options}
    return SupervisorRunner(CPU, state_dir / "state", SupervisorOptions(**chosen))


def ignore(progress: object) -> None:
    """For those who do not care how far a call is."""


async def gone(pidfds: list[int], limit_s: float) -> bool:
    """Whether all processes end within the limit."""
    with anyio.move_on_after(limit_s):
        for descriptor in pidfds:
            await anyio.wait_readable(descriptor)
        return True
    return False

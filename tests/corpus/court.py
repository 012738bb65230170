"""A real supervisor, referee and walls, asked one call after the other; the verdicts are those of the tools."""

import asyncio
import itertools
import json
import shutil
import tempfile
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import RUNGS, Case

from kernelgate.budget.model import PASSING
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Candidate, Task
from kernelgate.tools.compile import LIBRARY, built_on_device
from kernelgate.tools.kit.catalogue import find_tools
from kernelgate.tools.kit.house import DeviceBuildFacts
from kernelgate.tools.kit.runner import SupervisorOptions, SupervisorRunner
from kernelgate.tools.kit.spec import MeasuringTool
from kernelgate.tools.kit.wire import DeviceRef, WorkerReply, WorkerRequest
from kernelgate.tools.worker import processes

CALL_LIMIT_S = 120.0
TOOLS = {tool.name: tool for tool in find_tools() if isinstance(tool, MeasuringTool)}


@dataclass(frozen=True)
class Step:
    """What one rung said."""

    tool: str
    verdict: str
    code: str | None
    summary: str
    report: Any
    reply: WorkerReply

    @property
    def passed(self) -> bool:
        """Whether the ladder goes on behind it."""
        return self.report.verdict in PASSING[TOOLS[self.tool].rung]


class Court:
    """One supervisor of one device, started at the first call."""

    def __init__(self, device: DeviceRef, **options: Any) -> None:
        self.device = device
        # Not below a home folder: the dedicated user of the children must reach it.
        self._folder = Path(tempfile.mkdtemp(prefix="kernelgate-corpus-"))
        self._folder.chmod(0o755)
        self._ids = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        options = {"lease_dir": self._folder / "leases", **options}
        self._runner: SupervisorRunner = self._do(self._make(options))

    async def _make(self, options: dict[str, Any]) -> SupervisorRunner:
        return SupervisorRunner(self.device, self._folder / "state", SupervisorOptions(**options))

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_LIMIT_S)

    def climb(self, case: Case) -> list[Step]:
        """The rungs of a case up to the first that it does not pass."""
        steps: list[Step] = []
        for tool in RUNGS[case.rung]:
            plan = case.plan if tool == RUNGS[case.rung][-1] else {}
            steps.append(self.judged(tool, task_of(case), case.files, cap_s=case.cap_s, **plan))
            if not steps[-1].passed:
                break
        return steps

    def judged(self, tool: str, task: Task, files: dict[str, str], *, cap_s: float = 30.0, **plan: Any) -> Step:
        """One rung, run once where the server would to see what it computes with; a fault of ours raises."""
        reply = self._asked(tool, task, files, cap_s, plan)
        spec = TOOLS[tool]
        facts = None if reply.facts is None else spec.facts.model_validate_json(json.dumps(reply.facts))
        report: Any = spec.judge(facts, reply.exit, spec.plan.model_validate(plan))
        if tool == "compile" and (report.verdict, report.code) == ("needs_device", LIBRARY):
            reply = self._asked("device_build", task, files, cap_s, {})
            seen = None if reply.facts is None else DeviceBuildFacts.model_validate_json(json.dumps(reply.facts))
            report = built_on_device(report, seen, reply.exit, library_calls=task.allow_library_calls)
        return Step(tool, str(report.verdict), report.code, report.summary, report, reply)

    def _asked(self, procedure: str, task: Task, files: dict[str, str], cap_s: float, plan: Any) -> WorkerReply:
        request = WorkerRequest(
            request_id=next(self._ids), procedure=procedure, task=task, files=files,
            digest=Candidate(files=files).digest, plan=plan, device=self.device, lease=procedure != "compile",
            cap_s=cap_s, state_dir=str(self._folder / "state"), hidden=procedure == "precise_time",
        )  # fmt: skip
        reply: WorkerReply = self._do(self._runner.run(request, lambda progress: None))
        if reply.fault:
            raise RuntimeError(f"{procedure}: a fault of ours: {reply.fault}\n{reply.log}")
        return reply

    def family(self) -> set[int]:
        """Process ids of all that the supervisor has below it."""
        pid = self._runner.supervisor_pid
        return set() if pid is None else set(processes.descendants(pid))

    def close(self) -> None:
        """End the supervisor and remove its folder."""
        self._do(self._runner.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def task_of(case: Case) -> Task:
    """The bundled task that a case is written for."""
    return Catalogue([]).task(case.task).model_copy(update={"allow_library_calls": not case.forbid_library_calls})

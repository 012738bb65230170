"""The trusted side of one compile: asks the candidate's process to load and to trace, then reads its binaries."""

import json
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

from pydantic import ConfigDict, JsonValue

from kernelgate.tasks.model import Frozen, Task, Workload
from kernelgate.tasks.source import with_overrides
from kernelgate.tasks.source_scan import scan_files
from kernelgate.tools.kit import catalogue
from kernelgate.tools.kit.build_tools import find_build_tools
from kernelgate.tools.kit.facts import Fault, Kernel, Trace
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import binaries, conversation, extensions, frames, protocol
from kernelgate.tools.worker.folders import Caches, caches_of
from kernelgate.tools.worker.sealed import send_answer

COMPILE_S: Final = 35.0
"""Autotuned configurations are compiled for so long, of the 60 s of a compile; the rest is left to the device."""
MAX_CONFIGURATIONS: Final = 48
"""Per workload; what is left out compiles at the first call on the device."""


class BuildRequest(Frozen):
    """What the builder needs of a `WorkerRequest`."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    request_id: int
    procedure: str = "compile"
    task: Task
    files: dict[str, str]
    digest: str
    plan: dict[str, JsonValue]
    device: DeviceRef
    state_dir: str


class TraceBuilder:
    """`kernelgate.tools.kit.bench.Builder` over a candidate's process."""

    def __init__(self, request: BuildRequest, control: socket.socket, candidate: socket.socket) -> None:
        """Takes over the candidate's socket."""
        self._request = request
        self._control = control
        self._conversation = conversation.Conversation(candidate)
        self._notes: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """The task of the call."""
        return self._request.task

    @property
    def device(self) -> DeviceRef:
        """The device that the run is on."""
        return self._request.device

    @property
    def files(self) -> Mapping[str, str]:
        """The candidate's files."""
        return self._request.files

    def missing_programs(self) -> tuple[str, ...]:
        """Looked for now: what is installed while a worker is there counts at once."""
        return tuple(name for name, path in find_build_tools().items() if not path)

    def load(self) -> Fault | None:
        """Have the candidate's module imported."""
        self._progress("import", 0, 0)
        question = protocol.Load(precision=self.task.precision, threads=self.device.threads)
        answer = self._conversation.ask("load", question, protocol.Done)
        return answer if isinstance(answer, Fault) else None

    def trace(self) -> Trace | Fault:
        """Trace each public workload, until one does not go through."""
        on, workloads = self._subject()
        began = time.monotonic()
        traced: list[protocol.Traced] = []
        for done, workload in enumerate(workloads):
            self._progress(f"trace {workload.name}", done, len(workloads))
            left_s = max(1.0, COMPILE_S - (time.monotonic() - began))
            answer = self._conversation.ask("trace", self._question(on, workload, left_s), protocol.Traced)
            if isinstance(answer, Fault):
                return answer
            if answer.raised is not None:
                return conversation.fault_of("trace", answer.raised)
            traced.append(answer)
            if not answer.complete:
                break
        return _together(on, workloads, traced)

    def construct(self) -> Trace | Fault:
        """Have the model built for the smallest public workload, without a forward."""
        on, workloads = self._subject()
        self._progress("construct", 0, 0)
        traced: list[protocol.Traced] = []
        for workload in workloads[:1]:
            question = self._question(on, workload, COMPILE_S).model_copy(update={"forward": False})
            answer = self._conversation.ask("construct", question, protocol.Traced)
            if isinstance(answer, Fault):
                return answer
            if answer.raised is not None:
                return conversation.fault_of("construct", answer.raised)
            traced.append(answer)
        return _together(on, workloads, traced)

    def extensions(self) -> tuple[str, ...]:
        """Names of the shared objects in the candidate's cache of extensions."""
        return extensions.built_in(self._caches.extensions)

    def kernels(self) -> tuple[Kernel, ...]:
        """Read what is in the candidate's caches; meanwhile, for a GPU, it builds what a first launch would."""
        self._progress("read binaries", 0, 0)
        if scan_files(self.files).language == "cuda":
            self.close()
            return self._of_target(extensions.read_extension_kernels(self._caches.extensions))
        cache = self._caches.triton
        with ThreadPoolExecutor(1) as beside:
            future = beside.submit(binaries.read_kernels, cache)
            if self.device.kind == "cuda":
                # A candidate that fails here is not yet at fault: its launch will say so.
                self._conversation.ask("trace", protocol.BuildLaunchers(), protocol.Done)
            reading = future.result()
        self.close()
        return self._of_target(reading)

    def _of_target(self, reading: binaries.Reading) -> tuple[Kernel, ...]:
        self._notes = reading.notes
        target = self.device.target.rstrip("af")
        return tuple(kernel for kernel in reading.kernels if kernel.target == target)

    def notes(self) -> tuple[str, ...]:
        """What could not be read."""
        return self._notes

    def close(self) -> None:
        """End the candidate's part."""
        self._conversation.close()

    @property
    def _caches(self) -> Caches:
        return caches_of(self._request.state_dir, self.device, self._request.digest)

    def _subject(self) -> tuple[Literal["fake_cuda", "fake_cpu"], tuple[Workload, ...]]:
        """What to trace on, and which workloads: what a GPU would run, but for torch candidates of a CPU run."""
        if self.device.kind == "cpu" and scan_files(self.files).language == "torch":
            return "fake_cpu", self.task.workloads_on("cpu", held_out=False)
        on_gpu = self.task.workloads_on("cuda", held_out=False)
        return "fake_cuda", on_gpu or self.task.workloads_on("cpu", held_out=False)

    def _question(
        self, on: Literal["fake_cuda", "fake_cpu"], workload: Workload, compile_s: float
    ) -> protocol.TraceWorkload:
        return protocol.TraceWorkload(
            on=on,
            target=self.device.target,
            workload=workload.name,
            reference=with_overrides(self.task.source, workload.overrides),
            compile_s=compile_s,
            configurations=MAX_CONFIGURATIONS,
        )

    def _progress(self, stage: str, done: int, total: int) -> None:
        frames.send(
            self._control,
            {"op": "progress", "request_id": self._request.request_id, "stage": stage, "done": done, "total": total},
        )


def _together(
    on: Literal["fake_cuda", "fake_cpu"], workloads: Sequence[Workload], traced: Sequence[protocol.Traced]
) -> Trace:
    """What the traces of some workloads showed, up to the first that did not go through."""
    if not traced:
        return Trace(on=on, workloads=(), complete=False, error="the task has no public workload to trace")
    last = traced[-1]
    return Trace(
        on=on,
        workloads=tuple(workload.name for workload in workloads[: len(traced)]),
        complete=last.complete,
        needs_values=last.needs_values,
        launches=sum(answer.launches for answer in traced),
        configurations_skipped=max(answer.configurations_skipped for answer in traced),
        operators=tuple(dict.fromkeys(name for answer in traced for name in answer.operators)),
        precisions=tuple(sorted({name for answer in traced for name in answer.precisions})),
        error=last.limitation,
    )


def serve_one(control: socket.socket, request: dict[str, JsonValue], candidate: socket.socket) -> None:
    """Conduct one compile and report it on `control`: progress, then `done` with the facts, or `failed`.

    Args:
        control: To the supervisor; left open.
        request: A `WorkerRequest` as JSON.
        candidate: To the candidate's process; closed at the end.

    Touches no device. Whatever the candidate does ends up in the facts; `failed` is a fault of ours. Raises OSError
    where the supervisor is gone.
    """
    try:
        parsed = BuildRequest.model_validate_json(json.dumps(request))
        builder = TraceBuilder(parsed, control, candidate)
        facts = catalogue.procedure(parsed.procedure).run(builder, parsed.plan)
        builder.close()
        answer: dict[str, JsonValue] = {
            "op": "done",
            "request_id": parsed.request_id,
            "facts": facts.model_dump(mode="json"),
            "house_s": 0.0,
            "prepare_s": 0.0,
            "observation": {},
        }
    except Exception as error:  # noqa: BLE001 -- the border of this process: the supervisor turns it into a fault of ours
        answer = {
            "op": "failed",
            "request_id": request.get("request_id"),
            "error": f"the compile could not be conducted: {type(error).__name__}: {error}"[:1000],
        }
    finally:
        candidate.close()
    send_answer(control, answer)

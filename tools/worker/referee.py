"""The referee's process: holds one task, and conducts the calls that the supervisor hands to it. Trusted."""

import json
import os
import select
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Final

import torch
from pydantic import JsonValue, TypeAdapter

from kernelgate.tasks.model import Task
from kernelgate.tools.kit import catalogue
from kernelgate.tools.kit.facts import Qualification
from kernelgate.tools.kit.wire import DeviceRef, WorkerRequest
from kernelgate.tools.worker import frames, reference
from kernelgate.tools.worker.bench import House, RefereeBench
from kernelgate.tools.worker.control import Busy
from kernelgate.tools.worker.conversation import Conversation
from kernelgate.tools.worker.counters import COUNTERS_FOLDER, Counting
from kernelgate.tools.worker.cuda_bench import CudaBench
from kernelgate.tools.worker.cuda_device import observe
from kernelgate.tools.worker.cuda_driver import CUDA_DEVICE, CudaFailure, DeviceMemoryFull, start_cuda
from kernelgate.tools.worker.cuda_lending import CudaLender
from kernelgate.tools.worker.cuda_timing import CudaTimer
from kernelgate.tools.worker.heap import give_freed_memory_back
from kernelgate.tools.worker.lending import MemfdLender
from kernelgate.tools.worker.memory import DoesNotFit, what_was_lacking
from kernelgate.tools.worker.placement import leave_place
from kernelgate.tools.worker.reference import TaskError
from kernelgate.tools.worker.sealed import Sealed, send_answer
from kernelgate.tools.worker.timing import apply_policy

_TIMES: Final = TypeAdapter(tuple[int, int])
QUALIFY: Final = "qualify"
PAUSE_S: Final = 2.0
"""A referee on a GPU that nobody has asked for so long gives back what it keeps for later, which others may lack."""
IDLE_S: Final = 60.0
"""After so long it gives back all its memory."""
KEPT_SHARE: Final = 8
"""Of the device's memory, torch may keep this part for the next call."""
MAX_ERROR_CHARS: Final = 1_000


class SupervisorGone(Exception):
    """The supervisor's end was closed: there is nobody to work for."""


class SocketControl:
    """`bench.Control` over the supervisor's socket."""

    def __init__(self, control: socket.socket, request_id: int) -> None:
        """For one call."""
        self._control = control
        self._request_id = request_id

    def progress(self, stage: str, done: int, total: int) -> None:
        """Does not wait."""
        self._send({"op": "progress", "stage": stage, "done": done, "total": total})

    def stop(self) -> Busy:
        """Waits for the supervisor's word."""
        self._send({"op": "stop"})
        return Busy(*_TIMES.validate_python(self._await("stopped").get("busy_ns", (0, 0))))

    def proceed(self) -> None:
        """Waits for the supervisor's word."""
        self._send({"op": "cont"})
        self._await("continued")

    def _send(self, message: dict[str, JsonValue]) -> None:
        frames.send(self._control, {**message, "request_id": self._request_id})

    def _await(self, op: str) -> dict[str, JsonValue]:
        while True:
            message = frames.receive_plain(self._control)
            if message is None:
                raise SupervisorGone
            if message.get("op") == op and message.get("request_id") == self._request_id:
                return message
            if message.get("op") in ("call", "ready"):
                raise RuntimeError(f"{message.get('op')} came while a call was under way")


@dataclass(frozen=True)
class _Gpu:
    """What the referee has on a GPU: the same for all tasks."""

    lender: CudaLender
    timer: CudaTimer
    counting: Counting


class Referee:
    """Keeps the task of the last call, so that the next one finds it built."""

    def __init__(self, control: socket.socket) -> None:
        """Nothing is held yet."""
        self._control = control
        self._digest = ""
        self._house: House | None = None
        self._failure: TaskError | DoesNotFit | None = None
        self._gpu: _Gpu | None = None

    def await_message(self, control: socket.socket) -> None:
        """Until there is something to read; meanwhile memory that nobody uses goes back, the longer the more."""
        if self._gpu is None or select.select([control], [], [], PAUSE_S)[0]:
            return
        torch.cuda.empty_cache()
        if select.select([control], [], [], IDLE_S - PAUSE_S)[0] or self._house is None:
            return
        for held in self._house.held.values():
            held.forget()
        self._gpu.counting.close()  # its context has half a gigabyte of the device
        torch.cuda.empty_cache()

    def answer(self, message: dict[str, JsonValue], descriptors: list[int]) -> dict[str, JsonValue]:
        """The reply to one frame; its descriptors: the sealed request, the candidate's socket. Raises our faults."""
        op = message.get("op")
        if op not in ("ready", "call"):
            raise RuntimeError(f"unknown frame {op!r}")
        with Sealed(descriptors.pop(0)) as sealed:
            request = WorkerRequest.model_validate_json(json.dumps(sealed.read()))
        if op == "ready":
            self._hold(request.task, request.device)
            return {"op": "ready", "crowded": self._crowded()}
        conversation = Conversation(socket.socket(fileno=descriptors.pop())) if descriptors else None
        return self._call(request, conversation)

    def _hold(self, task: Task, device: DeviceRef) -> None:
        """Size and execute the task's reference; a task that fails is remembered with its reason."""
        digest = f"{task.digest} {device.model_dump_json()}"
        if digest == self._digest:
            return
        self._digest, self._house, self._failure = "", None, None
        if device.kind == "cuda":
            self._start_gpu()
            torch.cuda.empty_cache()
        self._digest = digest
        apply_policy(task.precision, device.threads)
        if device.kind == "cpu":
            leave_place(device.threads)
        try:
            self._house = House(reference.hold(task, torch_device(device), device.kind))
        except (TaskError, DoesNotFit) as error:
            self._failure = error

    def _crowded(self) -> bool:
        """Whether the task lacks memory that others have on this GPU, maybe referees of other servers."""
        held = self._house.held.values() if self._gpu is not None and self._house is not None else ()
        return any(workload.crowded_out() for workload in held)

    def _start_gpu(self) -> None:
        if self._gpu is None:
            driver = start_cuda()
            self._gpu = _Gpu(CudaLender(driver), CudaTimer(driver), Counting(os.environ.get(COUNTERS_FOLDER, "")))

    def _bench(self, request: WorkerRequest, house: House, conversation: Conversation | None) -> RefereeBench:
        control = SocketControl(self._control, request.request_id)
        if self._gpu is None:
            return RefereeBench(request.task, request.device, house, MemfdLender(), control, conversation)
        gpu = self._gpu
        return CudaBench(
            request.task, request.device, house, gpu.lender, control, conversation, gpu.timer, gpu.counting
        )

    def _call(self, request: WorkerRequest, conversation: Conversation | None) -> dict[str, JsonValue]:
        start = time.perf_counter()
        self._hold(request.task, request.device)
        if self._house is None:
            if conversation is not None:
                conversation.close()
            return self._unfit(request, self._failure or TaskError("the task could not be held"))
        house = self._house
        house.house_s = time.perf_counter() - start
        bench = self._bench(request, house, conversation)
        try:
            facts = catalogue.procedure(request.procedure).run(bench, request.plan)
        except (TaskError, DoesNotFit) as error:
            return self._unfit(request, error)
        finally:
            bench.close()
            give_freed_memory_back()
            if self._gpu is not None:
                _trim()
        return {
            "op": "done",
            "facts": facts.model_dump(mode="json"),
            "house_s": house.house_s,
            "prepare_s": bench.preparing.total_s,
            "observation": {
                "load_1m": os.getloadavg()[0],
                "threads": request.device.threads,
                **(observe(request.device.uid) if self._gpu is not None else {}),
            },
        }

    def _unfit(self, request: WorkerRequest, error: TaskError | DoesNotFit) -> dict[str, JsonValue]:
        """Of a qualification it is the finding; of any other call it is a fault that the agent did not cause."""
        if request.procedure != QUALIFY:
            raise error
        facts = Qualification(
            error=str(error)[:MAX_ERROR_CHARS],
            bytes_needed=error.needed_bytes if isinstance(error, DoesNotFit) else 0,
            bytes_allowed=error.allowed_bytes if isinstance(error, DoesNotFit) else 0,
        )
        return {
            "op": "done",
            "facts": facts.model_dump(mode="json"),
            "house_s": 0.0,
            "prepare_s": 0.0,
            "observation": {},
        }


def torch_device(device: DeviceRef) -> str:
    """`cpu` or `cuda:0`: a referee sees one GPU only, whatever its number on the host."""
    return "cpu" if device.kind == "cpu" else CUDA_DEVICE


def _trim() -> None:
    """Between calls: give back what torch keeps of the device's memory, if it is much."""
    kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if kept > torch.cuda.mem_get_info()[1] // KEPT_SHARE:
        torch.cuda.empty_cache()


def serve(control: socket.socket) -> None:
    """Answer the supervisor until its end of `control` is closed.

    Runs the task's reference code, so it is confined like a candidate; it is the only process that holds expected
    outputs, seeds and orders.
    """
    referee = Referee(control)
    while True:
        referee.await_message(control)
        received = frames.receive(control)
        if received is None:
            return
        message, descriptors = received
        request_id = message.get("request_id")
        try:
            reply = referee.answer(message, descriptors)
        except SupervisorGone:
            return
        except Exception as error:  # noqa: BLE001  ours, whatever it is: said to the supervisor, traced in its log
            if not isinstance(error, CudaFailure):  # its sentence says all: the host lacks something, nothing broke
                traceback.print_exc(file=sys.stderr)
            reply = {"op": "failed", "error": _sentence(error)}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if reply["op"] == "ready":
            frames.send(control, {**reply, "request_id": request_id})
        else:
            send_answer(control, {**reply, "request_id": request_id})


def _sentence(error: Exception) -> str:
    known = isinstance(error, TaskError | DoesNotFit | CudaFailure | DeviceMemoryFull)
    text = str(error) if known else f"The referee failed: {type(error).__name__}: {error}"
    if isinstance(error, torch.OutOfMemoryError):
        text = f"The device has not enough free memory for this call: {what_was_lacking(error)}."
    return text.encode("utf-8", "replace").decode()[:MAX_ERROR_CHARS]

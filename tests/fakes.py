"""Fakes of the ports, kept to the same contract tests as the real ones."""

import asyncio
from collections.abc import Callable

from pydantic import JsonValue

from kernelgate.tools.kit.runner import OnProgress, RunnerClosed
from kernelgate.tools.kit.wire import ChildExit, Hello, Progress, WorkerReply, WorkerRequest

Script = Callable[[WorkerRequest], WorkerReply]


def finished(request: WorkerRequest, facts: JsonValue = None, *, lease_s: float = 0.5) -> WorkerReply:
    """A reply of a call that went well."""
    return WorkerReply(
        request_id=request.request_id, facts=facts, exit=ChildExit(kind="finished"), lease_s=lease_s, wall_s=lease_s
    )


class FakeRunner:
    """Answers as a script says, at once; without one a request runs until it is cancelled."""

    def __init__(self, script: Script | None = None) -> None:
        self.requests: list[WorkerRequest] = []
        self._script = script
        self._open: dict[int, asyncio.Future[WorkerReply]] = {}
        self._closed = False

    async def run(self, request: WorkerRequest, on_progress: OnProgress) -> WorkerReply:
        if self._closed:
            raise RunnerClosed("the runner is closed")
        if request.request_id in self._open:
            raise ValueError(f"request {request.request_id} is already running")
        self.requests.append(request)
        reply = self._open[request.request_id] = asyncio.get_running_loop().create_future()
        try:
            on_progress(Progress(request_id=request.request_id, stage="begun"))
            if self._script is not None:
                return self._script(request)
            return await reply
        finally:
            del self._open[request.request_id]

    async def cancel(self, request_id: int) -> None:
        reply = self._open.get(request_id)
        if reply is not None and not reply.done():
            reply.set_result(WorkerReply(request_id=request_id, exit=ChildExit(kind="cancelled"), lease_s=0.1))

    async def hello(self) -> Hello:
        if self._closed:
            raise RunnerClosed("the runner is closed")
        return Hello(pid=1, torch="2.13.0", triton="3.9.0", confinement=("nothing: a fake",))

    async def close(self) -> None:
        self._closed = True
        for request_id, reply in self._open.items():
            if not reply.done():
                exit_ = ChildExit(kind="not_started")
                reply.set_result(WorkerReply(request_id=request_id, exit=exit_, fault="The server is shutting down."))

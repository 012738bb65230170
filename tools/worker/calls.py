"""One call: what is running for it, how long each part took, and how it ended."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue, TypeAdapter, ValidationError

from kernelgate.tools.kit.wire import ChildExit, Progress, WorkerReply
from kernelgate.tools.worker.cache_guard import CacheGuard
from kernelgate.tools.worker.channel import Message
from kernelgate.tools.worker.children import Child
from kernelgate.tools.worker.conductor import Conductor, ConductorLost
from kernelgate.tools.worker.sealed import Envelope, Sealed

ANSWER_GRACE_S: Final = 30.0
"""After its candidate was killed, a conductor has so long to notice and to answer."""

Cut = Literal["", "cap_reached", "cancelled"]
_NUMBER: Final = TypeAdapter(float)
_OBJECT: Final = TypeAdapter(dict[str, JsonValue])


@dataclass
class Call:
    """A request on its way. Times are monotonic seconds."""

    request: Envelope
    sealed: Sealed
    """For the conductor; closed with the call."""
    progress: Callable[[Progress], None]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    started_s: float = field(default_factory=time.monotonic)
    queue_s: float = 0.0
    lease_taken_s: float = 0.0
    lease_s: float = 0.0
    house_s: float = 0.0
    cut: Cut = ""
    """Why we ended it before its conductor had answered."""
    fault: str = ""
    answer: Message = field(default_factory=lambda: Message())
    candidate: Child | None = None
    exit: ChildExit = field(default_factory=lambda: ChildExit(kind="not_started"))
    scratches: list[Path] = field(default_factory=list[Path])
    caches: CacheGuard | None = None
    """Of a candidate that is shown hidden workloads: its caches as they were."""
    shared_memory: frozenset[str] | None = None
    """What lay in the host's `/dev/shm` before, where the candidate can write there."""

    def reply(self) -> WorkerReply:
        """What the server is told."""
        capture = self.candidate.capture if self.candidate is not None else None
        facts = self.answer.get("facts")
        try:
            house_s = self.house_s + _NUMBER.validate_python(self.answer.get("house_s", 0.0))
            prepare_s = _NUMBER.validate_python(self.answer.get("prepare_s", 0.0))
            observation = _OBJECT.validate_python(self.answer.get("observation", {}))
        except ValidationError as error:
            house_s, prepare_s, observation, facts = self.house_s, 0.0, {}, None
            self.fault = self.fault or f"The conductor's answer was malformed: {error.errors()[0]['msg']}."
        return WorkerReply(
            request_id=self.request.request_id,
            facts=facts,
            exit=self.exit,
            fault=self.fault,
            lease_s=max(0.0, self.lease_s - house_s),
            house_s=house_s,
            prepare_s=prepare_s,
            queue_s=self.queue_s,
            wall_s=max(0.0, time.monotonic() - self.started_s - self.queue_s),
            log=capture.text() if capture is not None else "",
            log_dropped_bytes=capture.dropped_bytes if capture is not None else 0,
            observation=observation,
        )


async def conduct(call: Call, conductor: Conductor, answer: "asyncio.Future[Message]", grace_s: float) -> None:
    """Wait for the end of a call that was sent: answered, cut at its cap or by a cancel, or lost.

    The candidate is killed when time is up; its conductor sees the end of their socket and still answers. One that
    does not is a fault.
    """
    cancel = asyncio.ensure_future(call.cancelled.wait())
    try:
        await asyncio.wait((answer, cancel), timeout=call.request.cap_s, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            call.cut = "cancelled" if cancel.done() else "cap_reached"
            if call.candidate is None:
                answer.cancel()
                return  # nobody but the conductor was at work: the caller ends it
            call.candidate.proceed()
            call.candidate.kill()
            await asyncio.wait((answer,), timeout=grace_s)
        _take(call, conductor, answer, grace_s)
    finally:
        cancel.cancel()


def _take(call: Call, conductor: Conductor, answer: "asyncio.Future[Message]", grace_s: float) -> None:
    if not answer.done():
        answer.cancel()
        call.fault = f"The {conductor.name} did not answer within {grace_s:g} s after its call was cut."
        return
    try:
        message = answer.result()
    except ConductorLost as error:
        call.fault = str(error)
        return
    if message.get("op") == "failed":
        call.fault = str(message.get("error") or f"The {conductor.name} failed.")
    else:
        call.answer = message


async def classify(call: Call) -> ChildExit:
    """How the candidate's process ended. Call it before the conductor's end of their socket is closed here.

    An honest candidate waits for the next question until that end closes, so one that is alive when its conductor
    has answered has finished; one that is not has ended by itself.
    """
    candidate = call.candidate
    if candidate is not None and not candidate.running and not call.cut:
        await candidate.gone()
    ended = candidate.ended if candidate is not None else None
    if ended is not None and call.cut != "cancelled":
        return ChildExit(kind="signalled" if ended.signalled else "exited", status=ended.status)
    if call.cut:
        return ChildExit(kind=call.cut)
    return ChildExit(kind="finished")

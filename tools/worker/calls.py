"""One call: what is running for it, how long each part took, and how it ended."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue, TypeAdapter, ValidationError

from kernelgate.tools.kit.wire import ChildExit, Progress, Returned, WorkerReply
from kernelgate.tools.worker.cache_guard import CacheGuard
from kernelgate.tools.worker.capture import Capture
from kernelgate.tools.worker.channel import Message
from kernelgate.tools.worker.children import Child
from kernelgate.tools.worker.conductor import Answer, Conductor, ConductorLost
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
    """What the supervisor may know of it."""
    answered: Sealed | None = None
    """The rest, for the server."""
    house_log: Capture | None = None
    """Of a conductor that was ended."""
    failed: bool = False
    """Its conductor says that it could not do it; why, the server reads."""
    candidate: Child | None = None
    exit: ChildExit = field(default_factory=lambda: ChildExit(kind="not_started"))
    scratches: list[Path] = field(default_factory=list[Path])
    caches: CacheGuard | None = None
    """Of a candidate that is shown hidden workloads: its caches as they were."""
    shared_memory: frozenset[str] | None = None
    """What lay in the host's `/dev/shm` before, where the candidate can write there."""

    def returned(self) -> tuple[Returned, list[int]]:
        """What the server is told, and the descriptors that go with it, which stay the call's."""
        reply = self._reply()
        descriptors = [] if self.answered is None else [self.answered.fileno()]
        log = None
        if self.candidate is not None:
            log = self.candidate.capture.kept
            descriptors.append(self.candidate.capture.fileno())
        if self.house_log is not None:
            descriptors.append(self.house_log.fileno())
        house_log = None if self.house_log is None else self.house_log.kept
        return Returned(reply=reply, answered=self.answered is not None, log=log, house_log=house_log), descriptors

    def close(self) -> None:
        """Give back what it owns."""
        self.sealed.close()
        self.drop_answer()
        if self.candidate is not None:
            self.candidate.capture.close()
        if self.house_log is not None:
            self.house_log.close()

    def take(self, answer: Answer) -> None:
        """Take over its conductor's last word."""
        self.drop_answer()
        self.answered = answer.sealed
        self.failed = answer.message.get("op") == "failed"
        self.answer = answer.message
        if self.failed and answer.sealed is None:
            self.fault = str(answer.message.get("error") or "Whoever conducted the call failed.")

    def drop_answer(self) -> None:
        """There is none, or none that counts."""
        if self.answered is not None:
            self.answered.close()
            self.answered = None

    def _reply(self) -> WorkerReply:
        facts = self.answer.get("facts")
        try:
            house_s = self.house_s + _NUMBER.validate_python(self.answer.get("house_s", 0.0))
            prepare_s = _NUMBER.validate_python(self.answer.get("prepare_s", 0.0))
            observation = _OBJECT.validate_python(self.answer.get("observation", {}))
        except ValidationError as error:
            house_s, prepare_s, observation, facts = self.house_s, 0.0, {}, None
            self.drop_answer()
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
            observation=observation,
        )


async def conduct(call: Call, conductor: Conductor, answer: "asyncio.Future[Answer]", grace_s: float) -> None:
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


def _take(call: Call, conductor: Conductor, answer: "asyncio.Future[Answer]", grace_s: float) -> None:
    if not answer.done():
        answer.cancel()
        call.fault = f"The {conductor.name} did not answer within {grace_s:g} s after its call was cut."
        return
    try:
        call.take(answer.result())
    except ConductorLost as error:
        call.fault = str(error)


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

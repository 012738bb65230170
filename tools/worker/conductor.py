"""The supervisor's talk with the trusted process that conducts a call: the referee, or the builder of one compile."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from kernelgate.tools.kit.wire import Progress
from kernelgate.tools.worker.channel import Channel, Message
from kernelgate.tools.worker.children import Child
from kernelgate.tools.worker.sealed import Sealed


class ConductorLost(Exception):
    """The conductor ended, broke the protocol or did not answer in time: a fault of ours, in one sentence."""


@dataclass(frozen=True)
class Answer:
    """The last frame about a request, and what came with it."""

    message: Message
    sealed: Sealed | None
    """Facts and what went wrong, which only the server reads; whoever takes the answer closes it."""


class Conductor:
    """One question at a time; while it works it may have the candidate stopped and continued, and report progress."""

    def __init__(self, name: str, child: Child, sock: socket.socket) -> None:
        self.name = name
        self.child = child
        self._arrived: deque[int] = deque()
        self._channel = Channel(sock, self._hear, self._lose, descriptors=self._arrived)
        self._lost = ""
        self._request_id = 0
        self._answer: asyncio.Future[Answer] | None = None
        self._candidate: Child | None = None
        self._progress: Callable[[Progress], None] = _ignore

    @property
    def usable(self) -> bool:
        """Whether it can be asked."""
        return not self._lost

    def expect(
        self, request_id: int, candidate: Child | None, progress: Callable[[Progress], None]
    ) -> "asyncio.Future[Answer]":
        """The final answer to a request: `ready`, `done` or `failed`. Fails with `ConductorLost`.

        Frames with another request id are late and discarded.
        """
        self._request_id, self._candidate, self._progress = request_id, candidate, progress
        self._answer = asyncio.get_running_loop().create_future()
        if self._lost:
            self._answer.set_exception(ConductorLost(self._lost))
        return self._answer

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a frame; raises ValueError if it is too long."""
        self._channel.send(message, descriptors)

    async def end(self) -> None:
        """Kill it and all that it started."""
        self._lose("it was ended")
        self._channel.close()
        self.child.kill()
        await self.child.gone()
        while self._arrived:
            os.close(self._arrived.popleft())

    def _hear(self, message: Message) -> None:
        op = message.get("op")
        late = message.get("request_id") != self._request_id
        if op in ("ready", "done", "failed"):
            # It came with the first byte of its frame, and of no other: what was read ahead of it has none.
            with_it = op != "ready" and bool(self._arrived)
            self._end_with(Answer(message, Sealed(self._arrived.popleft()) if with_it else None), late=late)
            return
        if late:
            return
        if op == "progress":
            self._report(message)
        elif op in ("stop", "cont"):
            self._obey(op == "stop")
        else:
            self._lose(f"it sent an unknown frame {op!r}")

    def _end_with(self, answer: Answer, *, late: bool) -> None:
        if not late and self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
        elif answer.sealed is not None:
            answer.sealed.close()

    def _report(self, message: Message) -> None:
        try:
            self._progress(Progress.model_validate(message))
        except ValidationError as error:
            self._lose(f"it sent a broken progress frame: {error.errors()[0]['msg']}")

    def _obey(self, stop: bool) -> None:  # noqa: FBT001  the two are one operation and its inverse
        done, busy_ns = True, (0, 0)
        if self._candidate is not None:
            if stop:
                done = self._candidate.stop()
                busy_ns = self._candidate.busy_ns()
            else:
                self._candidate.proceed()
        if not done:
            self._candidate_runs_on()
        op = "stopped" if stop else "continued"
        self._channel.send({"op": op, "request_id": self._request_id, "busy_ns": list(busy_ns)})

    def _candidate_runs_on(self) -> None:
        """What cannot be stopped would disturb the baseline: it is killed, and the call ends with its end."""
        if self._candidate is not None:
            self._candidate.kill()

    def _lose(self, why: str) -> None:
        self._lost = self._lost or f"The {self.name} was lost: {why or 'it ended'}."
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConductorLost(self._lost))
            self._answer.exception()  # whoever waits gets it; nobody has to


def _ignore(progress: Progress) -> None:
    """Nobody waits."""

"""The referee's end of the line to a candidate: one question, one answer, and the signals around each call."""

import json
import select
import socket
from collections.abc import Sequence
from typing import Final, Literal, TypeVar

from pydantic import JsonValue, ValidationError

from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.worker import frames, signals
from kernelgate.tools.worker.protocol import (
    ALLOCATION_TEXTS,
    MAX_ERROR_CHARS,
    OUT_OF_MEMORY,
    Question,
    Raised,
    Ran,
    Run,
    Stage,
)

AnswerT = TypeVar("AnswerT", bound=Frozen)
NOTHING: Final = signals.Around()


class Conversation:
    """The referee's end of the line to one candidate. After a broken answer or its end every question is a `Fault`."""

    def __init__(self, sock: socket.socket) -> None:
        """Takes over the socket."""
        self._sock = sock
        self._sequence = 0
        self._over: Literal["", "gone", "broken_protocol"] = ""
        self._why = ""

    def ask(
        self, stage: Stage, question: Question, answer: type[AnswerT], descriptors: Sequence[int] = ()
    ) -> AnswerT | Fault:
        """Send a question and wait, without a deadline, for its answer: whoever watches the clock kills the process."""
        return self._exchange(stage, question, answer, descriptors, [])

    def run(
        self, stage: Stage, question: Run, around: signals.Around = NOTHING
    ) -> tuple[Ran, tuple[float, ...]] | Fault:
        """Have calls made and time them by our clock (µs, hand-over included; a block once)."""
        walls_us: list[float] = []
        ran = self._exchange(stage, question, Ran, (), walls_us, around)
        if isinstance(ran, Fault):
            return ran
        asked = 1 if question.block else len(question.order)
        if len(ran.samples_ns) != len(question.order) or len(walls_us) != asked:
            return self._end(stage, "broken_protocol", "another number of samples than of calls")
        return ran, tuple(walls_us)

    def _exchange(
        self,
        stage: Stage,
        question: Question,
        answer: type[AnswerT],
        descriptors: Sequence[int],
        walls_us: list[float],
        around: signals.Around = NOTHING,
    ) -> AnswerT | Fault:
        if not self._over:
            self._refuse_what_nobody_asked_for()
        if self._over:
            return self._fault(stage)
        self._sequence += 1
        message: dict[str, JsonValue] = {"sequence": self._sequence, **question.model_dump(mode="json")}
        try:
            frames.send(self._sock, message, descriptors)
            if isinstance(question, Run):
                calls = 1 if question.block else len(question.order)
                walls_us += signals.conduct(self._sock, calls, around, spin=question.block)
            reply = frames.receive_plain(self._sock)
        except frames.BrokenFrame as error:
            return self._end(stage, "broken_protocol", str(error))
        except signals.OutOfTurn:
            return self._end(stage, "broken_protocol", "a signal out of turn")
        except OSError as error:
            return self._end(stage, "gone", type(error).__name__)
        if reply is None:
            return self._end(stage, "gone", "the candidate's process ended")
        return self._parsed(stage, reply, answer)

    def close(self) -> None:
        """Close our end: an honest candidate leaves when it reads the end of the stream."""
        self._over = self._over or "gone"
        self._sock.close()

    def _refuse_what_nobody_asked_for(self) -> None:
        readable, _, _ = select.select([self._sock], [], [], 0)
        if not readable:
            return
        try:
            waiting = self._sock.recv(1, socket.MSG_PEEK)
        except OSError:
            waiting = b""
        self._over = "broken_protocol" if waiting else "gone"
        self._why = "a message that nobody asked for" if waiting else "the candidate's process ended"

    def _parsed(self, stage: Stage, reply: dict[str, JsonValue], answer: type[AnswerT]) -> AnswerT | Fault:
        if reply.pop("sequence", None) != self._sequence or len(reply) != 1:
            return self._end(stage, "broken_protocol", "an answer with a wrong number or shape")
        name, body = next(iter(reply.items()))
        try:
            if name == "error":
                return fault_of(stage, Raised.model_validate_json(json.dumps(body)))
            if name == "ok":
                return answer.model_validate_json(json.dumps(body))
        except (ValidationError, RecursionError):
            return self._end(stage, "broken_protocol", f"an answer that is no {answer.__name__}")
        return self._end(stage, "broken_protocol", "an answer that is neither a result nor an error")

    def _end(self, stage: Stage, kind: Literal["gone", "broken_protocol"], why: str) -> Fault:
        self._over, self._why = kind, why
        return self._fault(stage)

    def _fault(self, stage: Stage) -> Fault:
        return Fault(kind=self._over or "gone", stage=stage, error=self._why[:MAX_ERROR_CHARS])


def fault_of(stage: Stage, raised: Raised) -> Fault:
    """The fault that an exception in the candidate is; running out of memory is told apart by type and text."""
    memory = raised.type in OUT_OF_MEMORY or (
        raised.type in ("RuntimeError", "AcceleratorError", "OSError")
        and any(text in raised.message for text in ALLOCATION_TEXTS)
    )
    return Fault(
        kind="out_of_memory" if memory else "raised",
        stage=stage,
        error=f"{raised.type}: {raised.message}"[:MAX_ERROR_CHARS],
        log=raised.log,
    )

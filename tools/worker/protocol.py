"""What referee and candidate say to each other: one question, one answer, numbered; JSON of closed models only.

The candidate's process is hostile by assumption. Its answers are descriptions and claims; tensors come back only in
memory that the referee lent, and descriptors that it sends are dropped by the kernel.
"""

import json
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from pydantic import BeforeValidator, Field, JsonValue, StringConstraints, ValidationError

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen, Precision
from kernelgate.tools.kit.facts import Fault, Operator
from kernelgate.tools.worker import frames, signals

Stage: TypeAlias = Literal["load", "construct", "forward", "block", "profile", "trace"]
ShortText: TypeAlias = Annotated[str, StringConstraints(max_length=200)]
MAX_ERROR_CHARS: Final = 500
MAX_LOG_CHARS: Final = 4_000
MAX_CALLS: Final = 10_000
"""Calls of one `run`: their samples must fit a frame."""
MAX_OUTPUTS: Final = 1_000
"""Tensors and scalars of one answer that are described; a longer answer is told by its first ones."""
OUT_OF_MEMORY: Final = ("MemoryError", "OutOfMemoryError")
ALLOCATION_TEXTS: Final = ("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate memory")
"""How torch's CPU allocator, mmap and CUDA word it inside a RuntimeError."""


class View(Frozen):
    """One tensor inside a parcel of lent memory."""

    dtype: ShortText
    """`float32`, as in `torch.float32`."""
    shape: Annotated[tuple[int, ...], BeforeValidator(as_tuple)]
    strides: Annotated[tuple[int, ...], BeforeValidator(as_tuple)]
    storage_start_bytes: int = Field(ge=0)
    storage_bytes: int = Field(ge=0)
    offset: int = Field(ge=0)
    """Of the first element in its storage, in elements."""


class Parcel(Frozen):
    """Lent memory: one descriptor beside the frame or, on a GPU, a handle; and the tensors that lie in it."""

    size_bytes: int = Field(gt=0)
    views: Annotated[tuple[View, ...], BeforeValidator(as_tuple)]
    handle: ShortText = ""
    """Of an allocation on a GPU, in hexadecimal."""


class TensorNode(Frozen):
    """A tensor, by its position among the views."""

    kind: Literal["tensor"] = "tensor"
    index: int = Field(ge=0)


class ScalarNode(Frozen):
    """A value that is no tensor. Floats as hexadecimal text, so that they cross exactly, nan and inf too."""

    kind: Literal["none", "bool", "int", "float", "str", "dtype"]
    text: str = ""


class ListNode(Frozen):
    """A list or a tuple."""

    kind: Literal["list", "tuple"]
    items: Annotated[tuple["Node", ...], BeforeValidator(as_tuple)]


class DictNode(Frozen):
    """A mapping with text or integer keys."""

    kind: Literal["dict"] = "dict"
    keys: Annotated[tuple[str | int, ...], BeforeValidator(as_tuple)]
    items: Annotated[tuple["Node", ...], BeforeValidator(as_tuple)]


Node: TypeAlias = Annotated[TensorNode | ScalarNode | ListNode | DictNode, Field(discriminator="kind")]
ListNode.model_rebuild()
DictNode.model_rebuild()


class AnswerPlace(Frozen):
    """Where the candidate puts an output: the lent tensor for a path such as `[1]` or `['logits']`."""

    path: ShortText
    index: int = Field(ge=0)


class Entry(Frozen):
    """One entry of the input pool."""

    inputs: Node
    answers: Annotated[tuple[AnswerPlace, ...], BeforeValidator(as_tuple)]


class Load(Frozen):
    """Import `candidate.py` and find `ModelNew`."""

    op: Literal["load"] = "load"
    precision: Precision
    threads: int = Field(ge=1)


class Construct(Frozen):
    """Build `ModelNew` as the reference was built; its parameters lie in the parcel, where there are any."""

    op: Literal["construct"] = "construct"
    arguments: Node
    weight_seed: int
    training: bool
    parcel: Parcel | None = None
    parameters: dict[str, int] = Field(default_factory=dict)
    """State-dict name → view."""


class Lend(Frozen):
    """Take entries into the input pool."""

    op: Literal["lend"] = "lend"
    replace: bool
    """Forget the entries that were there."""
    parcel: Parcel
    entries: Annotated[tuple[Entry, ...], BeforeValidator(as_tuple)]


class Forget(Frozen):
    """Give all entries of the input pool back: their memory is about to be freed."""

    op: Literal["forget"] = "forget"


class Run(Frozen):
    """Call `forward` on pool entries in this order and put each answer in place behind its call.

    Around each call go the bytes of `signals`, or with `block` around all calls together; the answer's frame comes
    after the last one.
    """

    op: Literal["run"] = "run"
    order: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = Field(min_length=1, max_length=MAX_CALLS)
    seed: int
    """Of the random numbers that a forward may use."""
    reseed: bool
    """Before each call: the reference uses random numbers."""
    restore: bool
    """Put the buffers back before each call: the reference changes its own."""
    block: bool = False
    """On a GPU: the calls are enqueued one behind the other, and awaited together."""
    sleep_us: float = Field(default=0.0, ge=0, le=1e6)
    """For so long the device sleeps first, so that the calls are enqueued before the first begins."""


class ProfileCalls(Frozen):
    """Call `forward` under the profiler."""

    op: Literal["profile"] = "profile"
    calls: int = Field(ge=1, le=MAX_CALLS)
    seed: int


class TraceWorkload(Frozen):
    """Build `ModelNew` and call `forward` on fake tensors of one workload; Triton kernels compile on the way."""

    op: Literal["trace"] = "trace"
    on: Literal["fake_cuda", "fake_cpu"]
    target: str
    """What kernels are compiled for: `sm_90`."""
    workload: str
    reference: str
    """The reference file under the workload's overrides: whence the inputs come."""
    compile_s: float = Field(gt=0)
    """After so many seconds further configurations of an autotuned kernel are skipped."""
    configurations: int = Field(ge=1)
    """At most so many configurations are compiled in this trace."""


Question: TypeAlias = Load | Construct | Lend | Forget | Run | ProfileCalls | TraceWorkload


class Done(Frozen):
    """Nothing to report."""


class Constructed(Frozen):
    """What became of the lent weights. Text for the agent."""

    loaded: int = Field(ge=0)
    missing: Annotated[tuple[ShortText, ...], BeforeValidator(as_tuple)] = ()
    """Names of the reference's state that the candidate has not, or in another shape or dtype; at most 20."""


class OutputClaim(Frozen):
    """What the candidate says that an output is."""

    path: ShortText
    type: ShortText
    """`torch.Tensor`, or whatever else came."""
    dtype: ShortText = ""
    shape: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = ()
    strides: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = ()
    device: ShortText = ""
    value: ScalarNode | None = None
    """Of an output that is no tensor."""


class EntryAnswer(Frozen):
    """The last answer for some pool entries, where they are described alike."""

    entries: Annotated[tuple[int, ...], BeforeValidator(as_tuple)]
    outputs: Annotated[tuple[OutputClaim, ...], BeforeValidator(as_tuple)] = Field(max_length=MAX_OUTPUTS)


class Ran(Frozen):
    """Claimed samples and what the answers are; the answers themselves lie in lent memory."""

    samples_ns: Annotated[tuple[Annotated[int, Field(ge=0, le=10**15)], ...], BeforeValidator(as_tuple)]
    answers: Annotated[tuple[EntryAnswer, ...], BeforeValidator(as_tuple)]
    enqueue_us: float = Field(default=0.0, ge=0, le=1e9)
    """Of a block on a GPU: how long enqueueing it took on the host."""
    covered: bool = True
    """Of a block on a GPU: all calls were enqueued before the first began."""
    compilations: int = Field(default=0, ge=0, le=10**9)
    """Kernels that were compiled or loaded for the first time during these calls."""


class Profiled(Frozen):
    """A table of operators, as the candidate's process saw them."""

    call_us: float = Field(ge=0)
    operators: Annotated[tuple[Operator, ...], BeforeValidator(as_tuple)] = Field(max_length=20)
    note: Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)] = ""
    """Why there are no operators."""


class Raised(Frozen):
    """The candidate raised. Text for the agent."""

    type: ShortText
    message: Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)]
    log: Annotated[str, StringConstraints(max_length=MAX_LOG_CHARS)] = ""


class Traced(Frozen):
    """How far the trace of one workload came. Text and counts for the agent."""

    complete: bool
    """Forward went through."""
    launches: int = Field(ge=0)
    configurations: int = Field(default=0, ge=0)
    """Compiled for autotuned kernels."""
    configurations_skipped: int = Field(default=0, ge=0)
    needs_values: bool = False
    limitation: Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)] = ""
    """What fake tensors cannot do; not the candidate's fault."""
    raised: Raised | None = None
    """What the candidate raised."""


AnswerT = TypeVar("AnswerT", bound=Frozen)


def nothing_at_ready(position: int) -> None:
    """Nothing to be done before a call."""


def nothing_at_done() -> None:
    """Nothing to be done behind a call."""


@dataclass(frozen=True)
class Around:
    """What the referee does between the signals of a call."""

    at_ready: Callable[[int], None] = nothing_at_ready
    """After the candidate is ready, before it is asked to go: with the position of the call. Inputs get their values
    here, so that nothing can be computed from them before the clock runs."""
    at_done: Callable[[], None] = nothing_at_done


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

    def run(self, stage: Stage, question: Run, around: Around | None = None) -> tuple[Ran, tuple[float, ...]] | Fault:
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
        around: Around | None = None,
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
                self._conduct(1 if question.block else len(question.order), walls_us, around or Around())
            reply = frames.receive_plain(self._sock)
        except frames.BrokenFrame as error:
            return self._end(stage, "broken_protocol", str(error))
        except OSError as error:
            return self._end(stage, "gone", type(error).__name__)
        if reply is None:
            return self._end(stage, "gone", "the candidate's process ended")
        return self._parsed(stage, reply, answer)

    def _conduct(self, calls: int, walls_us: list[float], around: "Around") -> None:
        """Ask for each call and time it; ends early where a frame comes instead: the candidate raised."""
        for position in range(calls):
            if not self._signalled(signals.READY):
                return
            around.at_ready(position)
            start = time.perf_counter_ns()
            self._sock.sendall(signals.GO)
            if not self._signalled(signals.DONE):
                return
            walls_us.append((time.perf_counter_ns() - start) / 1e3)
            around.at_done()

    def _signalled(self, expected: bytes) -> bool:
        """Wait for a byte; False where a frame begins or the stream ends."""
        byte = self._sock.recv(1, socket.MSG_PEEK)
        if byte in (b"", b"\0"):
            return False
        self._sock.recv(1)
        if byte != expected:
            raise frames.BrokenFrame("a signal out of turn")
        return True

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

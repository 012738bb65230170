"""What referee and candidate say to each other: one question, one answer, numbered; JSON of closed models only.

The candidate's process is hostile by assumption. Its answers are descriptions and claims; tensors come back only in
memory that the referee lent, and descriptors that it sends are dropped by the kernel.
"""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, StringConstraints

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen, Precision
from kernelgate.tools.kit.evidence import Inspected, Operator

Stage: TypeAlias = Literal["load", "construct", "forward", "block", "profile", "trace"]
ShortText: TypeAlias = Annotated[str, StringConstraints(max_length=200)]
MAX_ERROR_CHARS: Final = 500
MAX_OPERATORS: Final = 20
MAX_NAME_CHARS: Final = 400
"""Of an operator: a kernel of torch carries what it computes deep in its template arguments."""
MAX_LOG_CHARS: Final = 4_000
MAX_CALLS: Final = 10_000
"""Calls of one `run`: their samples must fit a frame."""
MAX_OUTPUTS: Final = 1_000
"""Tensors and scalars of one answer that are described; a longer answer is told by its first ones."""
MAX_INSPECTED: Final = 8
REPORT_BYTES: Final = 16 << 20
"""Most of a report that is kept; a usual one has one megabyte."""
REPORT_PART_BYTES: Final = 384 << 10
"""In base64 such a part fits a frame."""
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


Places: TypeAlias = Annotated[tuple[AnswerPlace, ...], BeforeValidator(as_tuple)]


class Entry(Frozen):
    """One entry of the input pool."""

    inputs: Node
    answers: Annotated[tuple[Places, ...], BeforeValidator(as_tuple)]
    """Sets of buffers. Into which one an answer goes is told when its forward has returned."""


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


class Steady(Frozen):
    """Call `forward` back to back, for the device's counters."""

    op: Literal["steady"] = "steady"
    calls: int = Field(ge=1, le=MAX_CALLS)
    seed: int


class Inspect(Frozen):
    """Run one call under Nsight Compute, in a process of its own below the candidate's."""

    op: Literal["inspect"] = "inspect"
    seed: int
    tf32: bool
    limit_s: float = Field(gt=0)


class ReportPart(Frozen):
    """A piece of the report that `Inspect` left."""

    op: Literal["report"] = "report"
    start: int = Field(ge=0)


class WaitForDevice(Frozen):
    """Before the next answer is handed over, wait for all streams of the device; that one alone."""

    op: Literal["wait"] = "wait"


class Watch(Frozen):
    """Call `forward` once and note with what it computes."""

    op: Literal["watch"] = "watch"
    seed: int
    closely: bool = False
    """Also below torch's dispatcher and on other threads, by torch's profiler, whose first start takes seconds."""


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
    forward: bool = True
    """Without it the model is built, and that is all."""


class BuildLaunchers(Frozen):
    """Build what the traced kernels need before a first launch."""

    op: Literal["launchers"] = "launchers"


Question: TypeAlias = (
    Load
    | Construct
    | Lend
    | Forget
    | Run
    | ProfileCalls
    | Steady
    | Inspect
    | ReportPart
    | WaitForDevice
    | Watch
    | TraceWorkload
    | BuildLaunchers
)


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
    rows: int = Field(default=0, ge=0)
    span_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    busy_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    host_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    waits: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    doubles_share: float = Field(default=0.0, ge=0, le=1)
    """See `kit.evidence.OperatorProfile`."""
    note: Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)] = ""
    """Why there are no operators."""


class Steadied(Frozen):
    """Means of one call, µs."""

    call_us: float = Field(ge=0, allow_inf_nan=False)
    host_us: float = Field(ge=0, allow_inf_nan=False)
    """Until `forward` returned."""


class InspectedCall(Frozen):
    """What Nsight Compute saw of one call."""

    kernels: Annotated[tuple[Inspected, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=MAX_INSPECTED)
    launches: int = Field(default=0, ge=0)
    """Seen; those that took longest are told."""
    report_bytes: int = Field(default=0, ge=0, le=REPORT_BYTES)
    """Of the report, where it is small enough to be kept."""
    note: Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)] = ""
    """Why there are no kernels."""


class ReportBytes(Frozen):
    """A piece of a report, in base64; empty behind its end."""

    data: Annotated[str, StringConstraints(max_length=REPORT_PART_BYTES * 2)]


class Watched(Frozen):
    """What one call computed with. Text for the agent."""

    operators: Annotated[tuple[ShortText, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=40)
    """Of torch: no memory, views or copies."""
    precisions: Annotated[tuple[ShortText, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=20)
    """In which they computed."""


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
    operators: Annotated[tuple[ShortText, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=40)
    """Of torch, that forward called: no memory, views or copies."""
    precisions: Annotated[tuple[ShortText, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=20)
    """In which they computed."""

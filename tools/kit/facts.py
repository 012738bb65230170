"""What the device side reports: numbers and facts, never verdicts. Judged in the server, untrusted where marked."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Distribution, Frozen
from kernelgate.tasks.qualify import Mutant as Mutant
from kernelgate.tasks.qualify import Qualification as Qualification
from kernelgate.tasks.qualify import ReferenceFacts as ReferenceFacts
from kernelgate.tasks.qualify import Trial as Trial

Side: TypeAlias = Literal["baseline", "candidate"]
WHILE_BASELINE: Final = "while the baseline was timed"
"""Pattern of an `input_mutation` that was found behind a block of the baseline."""


def _one_line(text: str) -> str:
    """What a candidate's exception says, as part of a sentence: no line breaks, nothing that would steer a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


class Fault(Frozen):
    """The candidate did not answer as it should; whoever meets one stops there and reports it."""

    kind: Literal["raised", "gone", "out_of_memory", "broken_protocol", "busy_device", "too_early"]
    """`gone`: its process ended or was killed; how is in `ChildExit`. `busy_device`: its work was on the GPU while
    nobody had called it. `too_early`: an answer changed after its call was said to be done."""
    stage: Literal["load", "construct", "forward", "block", "profile", "trace"]
    error: Annotated[str, AfterValidator(_one_line)] = ""
    """Exception type and message, at most 500 characters."""
    log: str = ""
    """End of the traceback, at most 4,000 characters. Written by the candidate: text for the agent, never data."""


class WorkloadFacts(Frozen):
    """One workload as the referee built it."""

    name: str
    held_out: bool
    bytes_in: int
    """What the reference reads of inputs and weights; of a table that it looks up only what it fetches."""
    bytes_out: int
    flops: int
    """Of the reference, by torch's flop counter (matrix products and convolutions only); 0 if it counts none."""
    doubles: bool = False
    """Its inputs, weights or answers are in float64: computing in it is no fault."""


class Mismatch(Frozen):
    """One wrong element. Values as text, so that nan and inf can be shown."""

    index: Annotated[tuple[int, ...], BeforeValidator(as_tuple)]
    got: str
    want: str


class Comparison(Frozen):
    """One answer compared with the expected one in the referee."""

    workload: str
    distribution: Distribution
    problem: Literal["none", "wrong_type", "wrong_shape", "wrong_dtype", "wrong_values", "nonfinite", "input_mutation"]
    got: str = ""
    """For wrong type, shape, dtype: what came, e.g. `float32 [4, 8] strides [8, 1]`."""
    want: str = ""
    output: str = ""
    """Which output of several, e.g. `[1]` or `['logits']`; empty for a single tensor."""
    wrong_share: float = Field(default=0.0, ge=0, le=1)
    """Share of elements outside the tolerance."""
    worst_abs: float = 0.0
    worst_rel: float = 0.0
    first: Annotated[tuple[Mismatch, ...], BeforeValidator(as_tuple)] = ()
    """The first five wrong elements."""
    untouched_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the lent answer buffer that still holds its poison."""
    pattern: str = ""
    """Where the wrong elements lie, if they form a pattern: `only the last 37 of 1000 rows`."""
    looks_like: Literal["", "zeros", "input", "constant", "previous_output", "low_precision"] = ""
    """What the wrong answer equals, if it equals something telling; `low_precision`: it is near everywhere."""
    missing_weights: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Names of the reference's state that the candidate has not, or in another shape or dtype."""
    again: bool = False
    """The same values had been asked before in this call, in other memory."""


class Prepared(Frozen):
    """A workload made ready for timing on both sides: fresh inputs lent, first calls done."""

    workload: WorkloadFacts
    prepare_s: float
    """Wall clock from loading to the end of the candidate's first call."""
    candidate_us: float
    """One warm candidate call, to size blocks with: by the referee's wall clock; on a GPU by the candidate's own."""
    baseline_us: float
    outside_error_us: float = Field(default=150.0, ge=0)
    """How far the referee's clock may be off for one call: on the CPU a slow hand-over."""
    hand_over_us: float = Field(default=0.0, ge=0)
    """By so much less than the baseline's a candidate's call may look, for reasons beside its work."""
    outside_clock: str = "referee's clock around each call, one hand-over taken off"
    """What the referee's time of a call rests on."""


class DeviceState(Frozen):
    """What a device said of itself behind a pair of blocks. What it does not tell is None."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle_reasons: int = 0
    """Why it ran no faster, as bits of NVML."""
    stolen_share: float = Field(default=0.0, ge=0, le=1)
    """Of a CPU: share of all processor time since the state before that the host took for somebody else."""


class Block(Frozen):
    """Calls timed in a row on one side, over a pool of inputs in an order that only the referee knew beforehand."""

    side: Side
    workload: str
    samples_us: Annotated[tuple[float, ...], BeforeValidator(as_tuple)]
    """One per call. Of the candidate on a GPU: its own clock, so a claim; on the CPU as `outside_us`."""
    outside_us: Annotated[tuple[float, ...], BeforeValidator(as_tuple)]
    """The same calls by the referee's clock, the hand-over between the processes taken off: no claim.

    On a GPU one number for the whole block: the time of a call from runs of two lengths."""
    rows: int = Field(default=1, ge=1)
    """Times that the candidate was asked for calls."""
    unseen_us: float = 0.0
    """Processor time of the candidate in this block beyond the windows of its calls.

    On the CPU, where it is known: work before, behind or beside what was timed. Negative where calls waited."""
    helpers_us: float = 0.0
    """The part of it that was not on the thread which makes the calls."""
    comparison: Comparison | None = None
    """Of the outputs kept from the timed calls, if this block was verified."""
    recompiled: bool = False
    """Kernels were compiled, or loaded for the first time, while the calls were timed."""


class Watched(Frozen):
    """With what one call of forward computed. Told by the candidate's process: a description, not evidence."""

    operators: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Of torch: no memory, views or copies."""
    precisions: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Floating-point types that they computed in."""


class Ceilings(Frozen):
    """Measured ceilings of the device, in the referee, paid by the house."""

    copy_gb_s: float
    """Read plus write of a large copy."""
    cache_gb_s: float = 0.0
    """The same of a copy that stays in the cache; 0 if unknown."""
    matmul_gflop_s: float
    """A float32 matrix product under the task's precision policy."""
    empty_us: float = 0.0
    """What a timing reads with nothing in it: no call is told as less. 0 if unknown."""
    launch_us: float = 0.0
    """What it reads of the smallest piece of work there is; 0 if unknown."""


class Kernel(Frozen):
    """One compiled kernel, read from its binary."""

    name: str
    target: str
    """`sm_90`"""
    registers: int
    spill_bytes: int
    """Local memory per thread: what did not fit into registers."""
    shared_bytes: int
    warps: int
    """Warps per block."""
    tensor_cores: bool
    """The binary has matrix instructions (HMMA, QGMMA, …)."""
    vector_loads: bool
    """The binary has 64- or 128-bit global loads, or bulk copies."""
    atomics: bool = False
    """The binary has atomic operations on global memory (ATOM, ATOMG, RED, REDG)."""
    doubles: bool = False
    """The binary computes in float64 (DADD, DFMA, DMUL)."""


class Trace(Frozen):
    """What a trace of the candidate on fake tensors of the real shapes showed."""

    on: Literal["fake_cuda", "fake_cpu"]
    workloads: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    complete: bool
    """Each public workload's forward went through."""
    needs_values: bool = False
    """It asked a tensor for its values, which a fake one does not have."""
    launches: int = 0
    """Triton kernels launched during the trace."""
    configurations_skipped: int = 0
    """Of autotuned kernels: left for the device, because there were too many or they took too long."""
    operators: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Of torch, that forward called: no memory, views or copies. Told by the candidate's process, so a description."""
    precisions: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Floating-point types that they computed in."""
    error: str = ""
    """What fake tensors could not do; not a fault of the candidate."""

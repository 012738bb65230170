"""What a profile of a candidate saw: its operators or kernels, and the counters of the device. Facts, no advice."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.facts import Ceilings, Kernel, WorkloadFacts

Counter: TypeAlias = Literal[
    "active", "busy", "dram_read", "dram_write", "l2", "l1", "issue", "tensor", "fma", "alu", "fp64", "xu", "l2_hits",
    "l1_sectors", "l1_misses", "shared_wavefronts", "blocks",
]  # fmt: skip
"""`active`: mean over the multiprocessors of the share of the window in which each had work; `busy`: the same of the
busiest, so the time of a call as no candidate can forge it. `dram_read` to `xu`: share of what the unit could sustain
over the whole window (`issue`: instructions issued; `fma`, `alu`, `fp64`, `xu`: of that pipe; `xu` does exponentials,
sines, conversions). `l2_hits`: share of the sectors asked of the L2 that were there. The others per call: `l1_sectors`
of 32 bytes that multiprocessors read or wrote through L1, `l1_misses` of them that went on to the L2,
`shared_wavefronts` passes through shared memory, `blocks` that were started."""
SECTOR_BYTES: Final = 32


class Launch(Frozen):
    """How a kernel was launched."""

    blocks: int = Field(ge=0)
    threads: int = Field(ge=0)
    """Per block."""
    registers: int = Field(default=0, ge=0)
    """Per thread."""
    shared_bytes: int = Field(default=0, ge=0)
    """Per block, static and dynamic."""


class Operator(Frozen):
    """One row of a profile: an operator of torch on the CPU, a kernel, copy or fill on a GPU."""

    name: str
    calls: int
    """Over all profiled calls."""
    self_us: float
    """Over all profiled calls."""
    share: float
    """Of the time of all rows."""
    launch: Launch | None = None
    """Of the first launch of a kernel; None on the CPU and of copies."""


class OperatorProfile(Frozen):
    """Time by operator over some warm calls. Written by the candidate's process: a description, not evidence."""

    workload: str
    calls: int
    call_us: float
    """Of one call: on a GPU from the device's first work to its last, launched ahead, cold cache."""
    operators: Annotated[tuple[Operator, ...], BeforeValidator(as_tuple)]
    """Largest first, at most 20."""
    rows: int = 0
    """How many different operators there were, those that are not told included."""
    span_us: float = 0.0
    """On a GPU: wall clock of a call, calls back to back and the cache not flushed; 0 if unknown."""
    busy_us: float = 0.0
    """Of a call the time in which any kernel, copy or fill ran; the rest of `span_us` are gaps. 0 if unknown."""
    host_us: float = 0.0
    """The host's time until `forward` returned, mean, without the profiler; 0 if unknown."""
    waits: float = 0.0
    """How often a call made the host wait for the device: synchronisations and copies to the host."""
    doubles_share: float = 0.0
    """On the CPU: of the operators' time that of those which took or gave a tensor of float64."""
    note: str = ""
    """Why there are none."""


class DeviceShape(Frozen):
    """What the GPU is: from its driver."""

    target: str
    """`sm_90`"""
    multiprocessors: int
    cache_bytes: int
    """L2."""
    dram_gb_s: float
    """Of the data sheet: memory clock times the width of the bus; what `dram_read` is a share of."""


class Counters(Frozen):
    """What the device counted while the candidate's calls ran back to back, read by the referee's side."""

    values: dict[Counter, float]
    """Of those that findings need, in their order, as many as this device counts in one pass."""
    calls: int
    call_us: float
    """Wall clock of a call in the counted window, back to back, without a flush of the cache."""
    seconds: float = 0.0
    """From the start of the process that reads them to their values; most of it beside other work."""

    def of(self, name: Counter) -> float | None:
        """One value; None if it was not counted."""
        return self.values.get(name)


class Stall(Frozen):
    """Why warps did not issue, and how often of all the times that they could not or could."""

    reason: str
    share: float


class HotLine(Frozen):
    """Where warps were found, of an instruction or a line of the source."""

    place: str
    """`candidate.py:17` and the line's text, or the instruction where the binary has no line numbers."""
    share: float
    """Of the samples of its kernel."""
    reason: str = ""
    """Why most of them waited there."""


class Inspected(Frozen):
    """One launch under Nsight Compute: cold caches, its own clocks. Told by the candidate's process: a description."""

    name: str
    us: float
    blocks: int
    threads: int
    registers: int
    values: dict[str, float]
    """`dram`, `l2`, `l1`, `compute`: shares of what could be sustained; `occupancy`: resident warps as a share of what
    fits; `waves` of blocks; `sectors`, `sectors_ideal`: that its global accesses touch, and would at best;
    `shared_wavefronts`, `shared_excess`: passes through shared memory, and those of them for conflicts of banks;
    `spills`: instructions that spill."""
    stalls: Annotated[tuple[Stall, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=5)
    hot: Annotated[tuple[HotLine, ...], BeforeValidator(as_tuple)] = Field(default=(), max_length=5)


class Inspection(Frozen):
    """One call under Nsight Compute."""

    kernels: Annotated[tuple[Inspected, ...], BeforeValidator(as_tuple)] = ()
    """Longest first, at most 8."""
    launches: int = 0
    """Seen; at most 20 are replayed."""
    note: str = ""
    """Why there are no kernels."""
    report: str = ""
    """ncu's own file in base64; empty where it is too large to be kept."""


class Counted(Frozen):
    """What the referee knows beside the candidate's own profile."""

    device: DeviceShape | None = None
    counters: Counters | None = None
    missing: str = ""
    """Why there are no counters, and what would add them; empty where none were asked for."""
    tensor_cores_serve: bool = False


class Evidence(Frozen):
    """All that a diagnosis is made from."""

    workload: WorkloadFacts
    profile: OperatorProfile
    ceilings: Ceilings
    device: DeviceShape | None = None
    """None on the CPU."""
    counters: Counters | None = None
    inspected: Annotated[tuple[Inspected, ...], BeforeValidator(as_tuple)] = ()
    """By Nsight Compute, where it was asked for."""
    kernels: Annotated[tuple[Kernel, ...], BeforeValidator(as_tuple)] = ()
    """The candidate's own, read from their binaries at `compile`."""
    tensor_cores_serve: bool = False
    """The task multiplies matrices in types that tensor cores take under its precision policy."""

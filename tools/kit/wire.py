"""All that crosses between server and supervisor: frames of a 4-byte big-endian length and JSON of at most 1 MiB."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import DeviceKind, Frozen, Task

FRAME_LIMIT_BYTES: Final = 1 << 20
ANSWER_LIMIT_BYTES: Final = 1 << 25
"""Of a frame with facts, from the referee to the server: 192 pairs of one workload may take 0.3 MiB."""
LOG_LIMIT_BYTES: Final = 32 << 10
"""Kept of a candidate's output: the first and the last half of this; the middle is counted and dropped."""


class DeviceRef(Frozen):
    """One device of this host."""

    kind: DeviceKind
    index: int = 0
    """CUDA ordinal among the GPUs that `CUDA_VISIBLE_DEVICES` leaves; 0 on the CPU."""
    number: int = 0
    """Of the GPU among all of the host: it names the user that its children run as, the same for each server."""
    uid: str = "cpu"
    """GPU UUID, or `cpu`: names the lease."""
    target: str = "sm_90"
    """GPU architecture that Triton candidates are compiled for."""
    threads: int = 1
    """Torch threads of referee and candidate on the CPU device."""


class WorkerRequest(Frozen):
    """One procedure on one candidate."""

    op: Literal["call"] = "call"
    request_id: int
    procedure: str
    """Name of a measuring tool, or of a house procedure (`qualify`, `probe`)."""
    task: Task
    files: dict[str, str] = Field(default_factory=dict)
    """The candidate's files; empty for a house procedure that needs none."""
    digest: str = ""
    """The candidate's digest."""
    plan: dict[str, JsonValue] = Field(default_factory=dict)
    """Validated again by the procedure's plan model."""
    device: DeviceRef
    lease: bool
    """Whether the device is used: compile needs none."""
    cap_s: float = Field(gt=0)
    """Kill the candidate after so many seconds: of the lease where there is one, else of work."""
    state_dir: str
    """Private scratch and compile caches of candidates live under it."""
    hidden: bool = False
    """Whether the candidate is shown hidden workloads: then its caches are afterwards as they were before."""


class Cancel(Frozen):
    """Stop the work of a request; its reply still comes, with exit `cancelled`."""

    op: Literal["cancel"] = "cancel"
    request_id: int


class ChildExit(Frozen):
    """How the candidate's process ended, as the supervisor saw it. Trusted."""

    kind: Literal["finished", "exited", "signalled", "cap_reached", "cancelled", "not_started"]
    """`finished`: after its last answer; `exited`/`signalled`: before; `cap_reached`: we killed it at `cap_s`."""
    status: int = 0
    """Exit status, or the number of the signal."""


class KeptLog(Frozen):
    """How much was printed, of which a memory file of twice `half_bytes` keeps the first and the last half.

    The second half is a ring: byte number n of what was printed lies at n modulo `half_bytes` in it.
    """

    half_bytes: int = Field(gt=0)
    written_bytes: int = Field(ge=0)

    @property
    def dropped_bytes(self) -> int:
        """How much of the middle is gone."""
        return max(0, self.written_bytes - 2 * self.half_bytes)


class WorkerReply(Frozen):
    """What came of a request."""

    op: Literal["reply"] = "reply"
    request_id: int
    facts: JsonValue = None
    """The procedure's facts model as JSON; None if the conductor could not finish."""
    exit: ChildExit
    fault: str = ""
    """A fault of ours (referee died, no memory, cannot fork): one sentence. The call costs nothing then."""
    lease_s: float = 0.0
    """Held for this call, less `house_s`."""
    house_s: float = 0.0
    """Of the lease: rebuilding the referee, calibration."""
    prepare_s: float = 0.0
    queue_s: float = 0.0
    """Waited for the lease."""
    wall_s: float = 0.0
    """From the start of the work to the reply, without `queue_s`."""
    log: str = ""
    """The candidate's stdout and stderr, bounded."""
    log_dropped_bytes: int = 0
    observation: dict[str, JsonValue] = Field(default_factory=dict)
    """Device state while measuring: clocks, load, confinement."""


class Progress(Frozen):
    """How far a request is."""

    op: Literal["progress"] = "progress"
    request_id: int
    stage: str
    done: int = 0
    total: int = 0


class Hello(Frozen):
    """First frame of a supervisor."""

    op: Literal["hello"] = "hello"
    pid: int
    torch: str
    triton: str
    confinement: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    """What holds candidates on this host, one sentence each, best first; `doctor` prints them."""
    gaps: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """What does not, with what to do about it."""

    @property
    def why_not_confined(self) -> str:
        """One sentence with what is missing of full confinement; empty if nothing is."""
        if self.confinement and not self.gaps:
            return ""
        missing = "; ".join(self.gaps) or "nothing holds candidates on this host"
        return f"full confinement is required, and this host does not give it: {missing}"


class Returned(Frozen):
    """A reply on its way: without what the supervisor must not read, which comes beside it in memory files."""

    op: Literal["returned"] = "returned"
    reply: WorkerReply
    answered: bool = False
    """The first descriptor: `facts` and `fault`, sealed by whoever conducted the call."""
    log: KeptLog | None = None
    """The next descriptor: what the candidate printed."""
    house_log: KeptLog | None = None
    """And the next: what our own side had printed before it ended."""


FromSupervisor: TypeAlias = Hello | Progress | Returned

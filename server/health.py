"""Is a GPU well? What gives cause to doubt it, what a probe says of it, and when it is set aside. Pure.

A kill or a crash can leave a GPU in a state in which every later call fails, and each would be booked on an innocent
candidate. So behind such an end a known good candidate is tried in a process of its own, before anything is judged.
"""

import re
from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from kernelgate.tasks.model import Frozen, canonical_json
from kernelgate.tools.kit.house import ProbeFacts
from kernelgate.tools.kit.wire import DeviceRef, WorkerReply

MOST_FAILED: Final = 3
"""So many failed probes in a row set a device aside: one may be a neighbour's doing, three are no accident."""
ASIDE_S: Final = 60.0
"""For so long a device that is set aside is not probed again: a driver that resets one takes seconds."""
ENDED_BADLY: Final = ("cap_reached", "signalled", "exited")
ACCELERATOR: Final = re.compile(r"AcceleratorError|CUDA (driver )?error|\[CUDA\]|CU\w+_STATUS_|CUDA_ERROR_")
"""In what a candidate raised: the words of torch, triton and NVIDIA's libraries. Whoever writes them without need has a
probe made, which the house pays."""
MAX_WHY_CHARS: Final = 300


class Finding(Frozen):
    """What a probe found."""

    well: bool | None
    """None: the probe did not come onto the device, so it says nothing of it."""
    why: str = ""
    paid_s: float = 0.0
    """Device seconds that it took; the house's."""


class Health(Frozen):
    """What this server knows of one device."""

    failed: int = 0
    """Probes that failed, in a row."""
    why: str = ""
    """What the last one said."""
    since_utc: str = ""
    """When the first of them failed."""
    probed_s: float = 0.0
    """Monotonic time of the last one."""

    @property
    def is_aside(self) -> bool:
        """Whether it takes no calls."""
        return self.failed >= MOST_FAILED

    def is_due(self, now_s: float) -> bool:
        """Whether a device that is set aside is to be probed at a call now."""
        return self.is_aside and now_s - self.probed_s >= ASIDE_S

    def after(self, finding: Finding, now_s: float, utc: str) -> "Health":
        """What is known once a probe has ended."""
        if finding.well is None:
            return self.model_copy(update={"probed_s": now_s})
        if finding.well:
            return Health(probed_s=now_s)
        return Health(failed=self.failed + 1, why=finding.why, since_utc=self.since_utc or utc, probed_s=now_s)

    def trouble(self, device: DeviceRef) -> str:
        """Of a device that is set aside, for a sentence: what, since when, what to do. Empty of any other."""
        if not self.is_aside:
            return ""
        since = self.since_utc.replace("T", " ").partition(".")[0]
        return (
            f"the GPU cuda:{device.index} ({device.uid}) is set aside: since {since} UTC {self.failed} probes with a "
            f"known good candidate failed on it in a row, the last with: {self.why}; look at it with nvidia-smi, "
            f"restart this server once it is well, or start a run on another device; a call after {ASIDE_S:g} s has it "
            "probed again"
        )


def is_doubtful(device: DeviceRef, reply: WorkerReply) -> bool:
    """Whether a call ended in a way that a GPU which is not well would explain."""
    if device.kind != "cuda":
        return False
    if reply.fault:
        return _was_on_the_device(reply)
    return reply.exit.kind in ENDED_BADLY or any(ACCELERATOR.search(error) for error in _raised(reply.facts))


def finding_of(reply: WorkerReply) -> Finding:
    """What the reply to a probe says of the device."""
    paid_s = reply.lease_s + reply.house_s
    if reply.fault and not _was_on_the_device(reply):
        return Finding(well=None, why=_line(reply.fault))
    if reply.fault or reply.facts is None:
        ended = f"its process ended ({reply.exit.kind} {reply.exit.status})"
        return Finding(well=False, why=_line(reply.fault or ended), paid_s=paid_s)
    facts = ProbeFacts.model_validate_json(canonical_json(reply.facts))
    return Finding(well=facts.well, why=_line(facts.why), paid_s=paid_s)


def _was_on_the_device(reply: WorkerReply) -> bool:
    """A referee that could not start CUDA held the lease; a call that got no lease, or no process, did not."""
    return reply.exit.kind != "not_started" or reply.lease_s + reply.house_s > 0


def _raised(facts: JsonValue) -> Iterator[str]:
    """What the candidate raised, out of the facts of any rung: of the call, or of one of its timings."""
    if not isinstance(facts, dict):
        return
    timings = facts.get("timings")
    for told in (facts, *(timings if isinstance(timings, list) else ())):
        fault = told.get("fault") if isinstance(told, dict) else None
        if isinstance(fault, dict) and fault.get("kind") == "raised":
            yield str(fault.get("error"))


def _line(text: str) -> str:
    return text.partition("\n")[0][:MAX_WHY_CHARS].rstrip(". ")

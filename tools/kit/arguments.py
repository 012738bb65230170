"""Arguments that the rungs share."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from kernelgate.budget.model import CandidateId
from kernelgate.tasks.model import Frozen

WaitSeconds = Annotated[
    float, Field(ge=0, le=600, description="Answer after so many seconds even if unfinished: then with a job_id.")
]
DEVICE_NAME: Final = re.compile(r"(cpu|cuda(:\d{1,3})?|GPU-[0-9a-f-]{1,40})?", re.ASCII)


def device_name(wish: str) -> str:
    """The name of a device as it was given, empty for none; raises ValueError for one that no host has."""
    if DEVICE_NAME.fullmatch(wish) is None:
        raise ValueError(
            f"{wish} names no device: use cpu, cuda or cuda:N (N counts the GPUs from 0), or a GPU's UUID (GPU-…; "
            "instances of one, MIG-…, are not measured on)"
        )
    return wish


DeviceName = Annotated[str, AfterValidator(device_name)]
OverrideReason = Annotated[str, StringConstraints(min_length=10, max_length=500)]


class RungArgs(Frozen):
    """A rung on a registered candidate."""

    candidate_id: CandidateId
    """From `compile`."""
    fresh: bool = False
    """Measure again (charged) instead of answering from the book."""
    wait_s: WaitSeconds = 40.0


class PromotionArgs(RungArgs):
    """A rung that the run's rule guards."""

    override_reason: OverrideReason | None = None
    """Promote against the rule, out of the small exploration purse: why this candidate deserves it."""

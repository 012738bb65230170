"""Arguments that the rungs share."""

from typing import Annotated

from pydantic import Field, StringConstraints

from kernelgate.budget.model import CandidateId
from kernelgate.tasks.model import Frozen

WaitSeconds = Annotated[
    float, Field(ge=0, le=600, description="Answer after so many seconds even if unfinished: then with a job_id.")
]
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

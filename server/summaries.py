"""The sentence at the head of a reply: what a rung said, and what the book adds to it."""

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Rung
from kernelgate.server import comparisons, other_baselines
from kernelgate.server.comparisons import CONSERVATIVE
from kernelgate.server.kinship import is_repeated, near_duplicate
from kernelgate.server.passages import Passage, with_company
from kernelgate.server.services import AnyMeasuringTool, Door, Services


async def summary_of(services: Services, tool: AnyMeasuringTool, door: Door, last: Passage) -> str:
    """The last rung's summary; of a precise timing what it is against others, since that is what users see;
    of a submission whether it repeats itself or another's code; and who else was on the GPU.
    """  # noqa: D205 -- one sentence too long for a line
    said = [last.summary]
    if last.rung is Rung.precise and last.passed:
        repeated, against = await services.ledger.do(lambda ledger: _beside_it(ledger, door))
        said += [repeated] if repeated else []
        said += [f"it is {other}" for other in against]
        said += [f"intervals between two candidates are {CONSERVATIVE}"] if any("between" in o for o in against) else []
    if last.rung is Rung.profile and last.passed:
        since = await services.ledger.do(lambda book: comparisons.profile_moved(book, door.run, door.candidate))
        said += [since] if since else []
    if tool.rung is Rung.compile and await services.ledger.do(lambda ledger: is_repeated(ledger, door.candidate)):
        said.append(f"this very source was submitted before: it is {door.candidate.candidate_id}")
    if tool.rung is Rung.compile and (twin := await near_duplicate(services.shapes, services.ledger, door.candidate)):
        said.append(f"near-duplicate of {twin}: the same code up to comments, layout and local names")
    return with_company("; ".join(said), last.company)


def _beside_it(ledger: Ledger, door: Door) -> tuple[str, list[str]]:
    """Of a candidate that was timed precisely: how often it was, and what it is against others."""
    candidate_id = door.candidate.candidate_id
    repeated = comparisons.times_measured(ledger, candidate_id, door.environment.environment_id)
    own = comparisons.against_own_kernel(ledger, door.run, candidate_id)
    best = comparisons.against_the_best(ledger, door.run, candidate_id)
    return repeated, [said for said in (own, best, *other_baselines.compared(ledger, door)) if said]

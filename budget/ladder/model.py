"""The nouns of a ladder comparison: a stream of candidates, the truth about it, and what a rule made of it. Pure."""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from kernelgate.budget.model import Rung, Verdict, as_tuple
from kernelgate.tasks.model import Frozen

FLAT: Final = "flat"
"""The rule without a gate, whose run is the truth."""


class Line(Frozen):
    """One candidate of a stream, as its file gives it."""

    id: str = Field(min_length=1, max_length=100)
    """Unique in the stream; a candidate's `parent` is the id of an earlier line."""
    parent: str | None = None
    source: str
    note: str = Field(default="", max_length=2000)
    """As long as `compile` takes it; a limit also makes half of a pair of surrogates an error here."""


class Stream(Frozen):
    """Candidates for one task, in the order in which an agent made them."""

    name: str
    task: str
    lines: Annotated[tuple[Line, ...], BeforeValidator(as_tuple)]


class Outcome(Frozen):
    """What one rung said of a candidate, and what it cost."""

    rung: Rung
    verdict: Verdict
    ratio: float | None = None
    """Baseline time / candidate time; above 1 is faster."""
    low: float | None = None
    high: float | None = None
    device_s: float = 0.0
    """Charged."""
    wall_s: float = 0.0
    """From the call to its reply."""


class Tried(Frozen):
    """All that the flat pass found out about one candidate: its rungs as far as it passed them, from `compile` on."""

    id: str
    """As in the stream, or the candidate's id in the ledger that it was read from."""
    outcomes: Annotated[tuple[Outcome, ...], BeforeValidator(as_tuple)]
    parent: str | None = None
    """Id of another one of the truth, which comes before it in every order."""
    twin_of: str | None = None
    """Id of the first one of the stream with the same source: to a book both are one candidate, which is paid for
    once, whichever of them comes first."""


class Truth(Frozen):
    """A stream measured without a gate: every candidate on every rung that it reached."""

    stream: str
    task: str
    device: str
    """As the run's environment names it."""
    tried: Annotated[tuple[Tried, ...], BeforeValidator(as_tuple)]
    """In the order of the stream."""
    complete: bool = True
    """False where a budget ended before the stream did, or a fault left a candidate unmeasured: what follows from it
    is partial."""


class Point(Frozen):
    """The best so far after so much was spent."""

    device_s: float
    wall_s: float
    id: str
    ratio: float
    """Of that candidate in the truth, not as the rule saw it."""


class Played(Frozen):
    """What a rule spent and found on a stream, live or replayed on its truth."""

    stream: str
    rule: str
    parameters: dict[str, float]
    live: bool
    """Measured through a server; else replayed on the truth."""
    calls: dict[str, int]
    """By rung."""
    device_s: dict[str, float]
    """By rung; their sum is what was charged."""
    wall_s: float
    best: str | None
    """Id of the incumbent at the end; None where nothing was measured precisely."""
    admitted: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """To precise."""
    refused: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """At the door of precise, and not admitted later."""
    curve: Annotated[tuple[Point, ...], BeforeValidator(as_tuple)] = ()
    partial: bool = False
    """It did not meet all that the stream has, or the truth does not."""
    ended: bool = False
    """Its own budget, or what interrupted it, ended it before the stream did, or a fault left a candidate behind."""

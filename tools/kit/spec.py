"""The two shapes of a tool. A tool file defines exactly one `TOOL`, named like the file."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import Field

from kernelgate.budget.model import Code, Rung, Verdict
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import Book
from kernelgate.tools.kit.wire import ChildExit

ArgsT = TypeVar("ArgsT", bound=Frozen)
PlanT = TypeVar("PlanT", bound=Frozen)
FactsT = TypeVar("FactsT", bound=Frozen)
BenchT = TypeVar("BenchT")


class RungReport(Frozen):
    """What each rung's report starts with; a tool adds its numbers."""

    verdict: Verdict
    code: Code | None = None
    """Class of the failure or trick, where one is known."""
    summary: str
    """One sentence: what was found and what to do about it."""


class Score(Frozen):
    """The number that rules and leaderboard compare: baseline time / candidate time, with its interval."""

    ratio: float = Field(gt=0)
    low: float = Field(ge=0)
    high: float


ReportT = TypeVar("ReportT", bound=RungReport)
AnswerT = TypeVar("AnswerT", bound=Frozen)


@dataclass(frozen=True)
class MeasuringTool(Generic[ArgsT, BenchT, PlanT, FactsT, ReportT]):
    """A rung. `measure` runs in the trusted worker process, `judge` in the server; both are free of state."""

    name: str
    title: str
    description: str
    rung: Rung
    args: type[ArgsT]
    plan: type[PlanT]
    facts: type[FactsT]
    report: type[ReportT]
    measure: Callable[[BenchT, PlanT], FactsT]
    judge: Callable[[FactsT | None, ChildExit, PlanT], ReportT]
    """`facts` is None when the conductor could not finish; the exit says how the candidate ended."""
    score: Callable[[ReportT], Score | None]
    limit_s: float
    """The enforced limit of one call: seconds of lease, or of work for compile."""
    first_hold_s: float
    """Held before anything is known of the cost."""
    wants_more: Callable[[FactsT, PlanT], bool] | None = None
    """Whether one more fresh process of the candidate is to be measured before this is judged."""
    with_more: Callable[[FactsT, FactsT], FactsT] | None = None
    """The facts of several processes as those of one call; given where `wants_more` is."""


@dataclass(frozen=True)
class BookTool(Generic[ArgsT, AnswerT]):
    """A look-up, or the start of a run: answered from the book, without a device."""

    name: str
    title: str
    description: str
    args: type[ArgsT]
    report: type[AnswerT]
    read_only: bool
    answer: Callable[[Book, ArgsT], Awaitable[AnswerT]]

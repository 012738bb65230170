"""`list_candidates`: the candidates of a run, as a leaderboard or a history."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from kernelgate.budget.model import Rung, RunId, Verdict, as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import Book, CandidateRow
from kernelgate.tools.kit.envelope import Answer
from kernelgate.tools.kit.spec import BookTool


class ListCandidatesArgs(Frozen):
    """Which candidates, in which order."""

    run_id: RunId
    order: Literal["best", "newest", "oldest"] = "best"
    """`best`: precisely timed ones first, by ratio; failed ones last."""
    limit: int = Field(default=20, ge=1, le=200)
    offset: int = Field(default=0, ge=0)


class CandidateList(Answer):
    """A page of candidates."""

    candidates: Annotated[tuple[CandidateRow, ...], BeforeValidator(as_tuple)]
    total: int


def _rank(row: CandidateRow) -> tuple[int, float]:
    """By the rung that the ratio is from; one that failed behind it is no best candidate, whatever it read there."""
    if row.ratio is None:
        return 3, 0.0
    failed = row.ratio_rung != row.furthest and row.verdict != Verdict.no_sample_left
    return 2 if failed else {Rung.precise.value: 0}.get(row.ratio_rung, 1), -row.ratio


async def answer(book: Book, args: ListCandidatesArgs) -> CandidateList:
    """Order and page."""
    rows = list(await book.candidates(args.run_id))
    if args.order == "best":
        rows.sort(key=_rank)
    elif args.order == "newest":
        rows.reverse()
    page = tuple(rows[args.offset : args.offset + args.limit])
    rest = len(rows) - args.offset - len(page)
    more = f"; {rest} more from offset {args.offset + len(page)}" if rest > 0 else ""
    return CandidateList(
        summary=f"{len(rows)} candidates in {args.run_id}{more}.",
        candidates=page,
        total=len(rows),
        next_steps=await book.next_steps(args.run_id, None),
        ledger_head=await book.head(),
    )


TOOL: Final = BookTool(
    name="list_candidates",
    title="List candidates",
    description=(
        "The candidates of a run with parent, note, furthest rung, verdict, speed-up with interval and cost: best "
        "first by default. Free. Read one with get_candidate."
    ),
    args=ListCandidatesArgs,
    report=CandidateList,
    read_only=True,
    answer=answer,
)

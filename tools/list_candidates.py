"""`list_candidates`: the candidates of a run, as a leaderboard or a history."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from kernelgate.budget.model import Rung, RunId, Verdict, as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import Book, CandidateRow
from kernelgate.tools.kit.envelope import Answer
from kernelgate.tools.kit.spec import BookTool

MAX_NOTE: Final = 200
"""Characters of a note in a list; get_candidate has the whole."""
MAX_PAGE_BYTES: Final = 13_000
"""About 3,250 tokens; with what stands around the page a reply stays under 4,000."""


class ListCandidatesArgs(Frozen):
    """Which candidates, in which order."""

    run_id: RunId
    order: Literal["best", "newest", "oldest", "parents"] = "best"
    """`best`: precisely timed ones first, by ratio; failed ones last. `parents`: what to mutate next: the best, then
    the best of each other structure (language, kernels, tile shape, features), each with lineage and why."""
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
    rows: Sequence[CandidateRow] = await book.candidates(args.run_id)
    of = f"{len(rows)} candidates"
    if args.order in ("best", "parents"):
        rows = sorted(rows, key=_rank)
    elif args.order == "newest":
        rows = rows[::-1]
    if args.order == "parents":
        rows = await book.parents(args.run_id, rows, args.offset + args.limit)
        of = f"{len(rows)} parents of different structure among {of}" if rows else f"no parent yet among {of}"
    page = _page(rows[args.offset : args.offset + args.limit])
    rest = len(rows) - args.offset - len(page)
    more = f"; {rest} more from offset {args.offset + len(page)}" if rest > 0 else ""
    return CandidateList(
        summary=f"{of} in {args.run_id}{more}.",
        candidates=page,
        total=len(rows),
        next_steps=await book.next_steps(args.run_id, None),
        ledger_head=await book.head(),
    )


def _page(rows: Sequence[CandidateRow]) -> tuple[CandidateRow, ...]:
    """Rows with their notes cut, up to what a reply may hold."""
    page: list[CandidateRow] = []
    size = 0
    for row in rows:
        note = row.note if len(row.note) <= MAX_NOTE else f"{row.note[:MAX_NOTE].rstrip()} …"
        shown = row.model_copy(update={"note": note})
        size += len(shown.model_dump_json(exclude_defaults=True).encode())
        if page and size > MAX_PAGE_BYTES:
            break
        page.append(shown)
    return tuple(page)


TOOL: Final = BookTool(
    name="list_candidates",
    title="List candidates",
    description=(
        "The candidates of a run with parent, note, furthest rung, verdict, speed-up with interval and cost: best "
        "first by default; order='parents' names what to mutate next. Free. Read one with get_candidate."
    ),
    args=ListCandidatesArgs,
    report=CandidateList,
    read_only=True,
    answer=answer,
)

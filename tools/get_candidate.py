"""`get_candidate`: one candidate's results, and its long texts by window and grep."""

import re
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from kernelgate.budget.model import TOOL_OF_RUNG, CandidateId, Rung
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import Book, CandidateView, TextPage, ToolMistake
from kernelgate.tools.kit.envelope import Answer
from kernelgate.tools.kit.spec import BookTool

MAX_PATTERN: Final = 200
MAX_LINE: Final = 2_000
"""A longer line is cut, and says so: minified sources and binary dumps would fill the reply."""


class GetCandidateArgs(Frozen):
    """Which candidate, and which of its texts."""

    candidate_id: CandidateId
    text: Annotated[str, StringConstraints(max_length=120)] = ""
    """Name of a source file (`candidate.py`) or artifact to read; empty for the results alone."""
    detail: Literal["", "samples"] = ""
    """`samples`: every timed block, as a text."""
    offset: int = Field(default=0, ge=0)
    """First line of the window, from 0."""
    limit: int = Field(default=100, ge=1, le=400)
    """Lines of the window."""
    grep: Annotated[str, StringConstraints(max_length=MAX_PATTERN)] = ""
    """Only lines that contain this text."""


class CandidateDetails(Answer):
    """A candidate with its results."""

    candidate: CandidateView
    page: TextPage | None = None


async def answer(book: Book, args: GetCandidateArgs) -> CandidateDetails:
    """The results, and a window of a text if one was asked for."""
    view = await book.candidate(args.candidate_id)
    page = None
    if args.text and args.detail:
        raise ToolMistake("text and detail are two texts: ask for one of them at a time.")
    if args.detail:
        page = window(args.detail, await book.samples(args.candidate_id), args)
    elif args.text:
        page = window(args.text, await book.text(args.candidate_id, args.text), args)
    elif args.grep or args.offset:
        raise ToolMistake("offset and grep need text (the name of a source file or artifact) or detail.")
    row = view.row
    ratio = "" if row.ratio is None else f", {row.ratio:.3f}x"
    if row.ratio_rung != row.furthest and ratio:
        ratio += f" by {TOOL_OF_RUNG[Rung(row.ratio_rung)]} before"
    return CandidateDetails(
        summary=f"{row.candidate_id} of {view.run_id}: {row.furthest or 'new'} {row.verdict}{ratio}".rstrip(),
        candidate=view,
        page=page,
        next_steps=await book.next_steps(view.run_id, args.candidate_id),
        ledger_head=await book.head(),
    )


def window(name: str, text: str, args: GetCandidateArgs) -> TextPage:
    """Lines from offset, after the filter. With grep each line is led by its number."""
    lines = text.splitlines()
    if args.grep:
        needle = re.compile(re.escape(args.grep))
        lines = [f"{number}: {line}" for number, line in enumerate(lines) if needle.search(line)]
    chosen = lines[args.offset : args.offset + args.limit]
    end = args.offset + len(chosen)
    shown = [line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} … ({len(line)} characters)" for line in chosen]
    return TextPage(
        name=name,
        text="\n".join(shown),
        offset=args.offset,
        next_offset=end if end < len(lines) else None,
        total_lines=len(lines),
    )


TOOL: Final = BookTool(
    name="get_candidate",
    title="Read a candidate",
    description=(
        "One candidate: parent, notes, every result with its numbers, and the names of its long texts (source files, "
        "logs, PTX). Read one with text=NAME, or its timed blocks with detail=samples, by offset, limit and grep. Free."
    ),
    args=GetCandidateArgs,
    report=CandidateDetails,
    read_only=True,
    answer=answer,
)

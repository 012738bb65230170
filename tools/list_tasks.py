"""`list_tasks`: what can be optimised here."""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import Book, TaskRow
from kernelgate.tools.kit.envelope import Answer
from kernelgate.tools.kit.spec import BookTool


class ListTasksArgs(Frozen):
    """Which tasks to list."""

    group: str = ""
    """Only this group, e.g. `bundled` or `kernelbench/level1`."""
    query: str = ""
    """Only names and titles that contain this text."""
    limit: int = Field(default=30, ge=1, le=300)
    offset: int = Field(default=0, ge=0)


class TaskList(Answer):
    """A page of tasks."""

    tasks: Annotated[tuple[TaskRow, ...], BeforeValidator(as_tuple)]
    total: int
    """Tasks that match."""
    groups: dict[str, int]
    """All groups with their number of tasks."""


async def answer(book: Book, args: ListTasksArgs) -> TaskList:
    """Filter and page the catalogue."""
    rows = await book.tasks()
    groups: dict[str, int] = {}
    for row in rows:
        groups[row.group] = groups.get(row.group, 0) + 1
    needle = args.query.lower()
    matching = [
        row for row in rows
        if args.group in ("", row.group) and (needle in row.name.lower() or needle in row.title.lower())
    ]  # fmt: skip
    page = tuple(matching[args.offset : args.offset + args.limit])
    rest = len(matching) - args.offset - len(page)
    more = f"; {rest} more from offset {args.offset + len(page)}" if rest > 0 else ""
    return TaskList(
        summary=f"{len(matching)} tasks match{more}. Read one with get_task, then start_run.",
        tasks=page,
        total=len(matching),
        groups=groups,
        ledger_head=await book.head(),
    )


TOOL: Final = BookTool(
    name="list_tasks",
    title="List tasks",
    description=(
        "Start here: the kernels that can be optimised on this server, with their groups. Free. Next: get_task for the "
        "reference and shapes, then start_run."
    ),
    args=ListTasksArgs,
    report=TaskList,
    read_only=True,
    answer=answer,
)

"""`get_budget`: what is left, and what it buys."""

from typing import Annotated, Final

from pydantic import BeforeValidator

from kernelgate.budget.model import LADDER, TOOL_OF_RUNG, Rung, RunId, as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import Book, RunView
from kernelgate.tools.kit.envelope import Answer, held_of
from kernelgate.tools.kit.spec import BookTool


class GetBudgetArgs(Frozen):
    """Which run."""

    run_id: RunId


class RungBudget(Frozen):
    """One rung's part of the purse."""

    tool: str
    price_device_s: float
    """Expected, from past calls."""
    calls_left: int
    affordable_calls: int
    """How often the remainder pays for it: the lower of calls and device seconds."""
    spent_s: float


class BudgetReport(Answer):
    """The purse of a run."""

    run: RunView
    rungs: Annotated[tuple[RungBudget, ...], BeforeValidator(as_tuple)]


async def answer(book: Book, args: GetBudgetArgs) -> BudgetReport:
    """What each rung costs and how often the remainder pays for it."""
    run = await book.run(args.run_id)
    rungs = tuple(_rung_budget(run, rung) for rung in (*LADDER, Rung.profile))
    bought = ", ".join(f"{row.affordable_calls} {row.tool}" for row in rungs[1:])
    held = f" {held_of(run.remaining)}." if run.remaining.held_device_s > 0 else ""
    return BudgetReport(
        summary=f"{run.remaining.device_s:.2f} {run.device_unit} left, which buys {bought} (each alone).{held}",
        run=run,
        rungs=rungs,
        next_steps=await book.next_steps(run.run_id, None),
        ledger_head=await book.head(),
    )


def _rung_budget(run: RunView, rung: Rung) -> RungBudget:
    left = {
        Rung.compile: run.remaining.compile_calls,
        Rung.check: run.remaining.check_calls,
        Rung.quick: run.remaining.quick_calls,
        Rung.precise: run.remaining.precise_calls,
        Rung.profile: run.remaining.profile_calls,
    }[rung]
    price_s = run.prices_s.get(rung.value, 0.0)
    paid_for = left if price_s <= 0 else int(run.remaining.device_s / price_s)
    return RungBudget(
        tool=TOOL_OF_RUNG[rung],
        price_device_s=price_s,
        calls_left=left,
        affordable_calls=max(0, min(left, paid_for)),
        spent_s=run.spent_s.get(rung.value, 0.0),
    )


TOOL: Final = BookTool(
    name="get_budget",
    title="Read the budget",
    description=(
        "What a run may still spend (device seconds, calls per rung, exploration purse), what each rung is expected to "
        "cost, and how many of each the remainder buys. Also the device, the rule and the incumbent. Free."
    ),
    args=GetBudgetArgs,
    report=BudgetReport,
    read_only=True,
    answer=answer,
)

"""What resources, prompts and completion read of the book beside what the tools read: lists, and rows of one run.

Like the book of the tools, one account's view: what belongs to another account reads as unknown.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BeforeValidator

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import TOOL_OF_RUNG, CandidateId, Rung, RunId, as_tuple
from kernelgate.budget.report import LedgerRow, recent_rows, spent_per_rung
from kernelgate.server.book import ServerBook
from kernelgate.server.caller import Context, account_of, client_of
from kernelgate.server.gpus import list_gpus
from kernelgate.server.services import Services
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.envelope import Answer, NextStep

MOST_RUNS: Final = 50
"""Newest first. `kernelgate runs` lists all."""
MOST_ROWS: Final = 50
"""Of a run's ledger, newest first: about 3,000 tokens. `kernelgate export` writes all."""


class RunRow(Frozen):
    """One line about a run. Nothing in it changes but whether it is open, so it need not be read again."""

    run_id: RunId
    task: str
    rule: str
    device: str
    created_utc: str
    closed: str
    """Why; empty while it is open."""


class RunList(Answer):
    """The newest runs."""

    runs: Annotated[tuple[RunRow, ...], BeforeValidator(as_tuple)]


class RunLedger(Answer):
    """What the book holds of a run: what was spent, and its last rows."""

    run_id: RunId
    spent_s: dict[str, float]
    """Device seconds settled, per tool."""
    rows: Annotated[tuple[LedgerRow, ...], BeforeValidator(as_tuple)]


@dataclass(frozen=True)
class Shelf:
    """What one request may read."""

    services: Services
    account: str
    client: tuple[str, str]

    @classmethod
    def of(cls, ctx: Context) -> "Shelf":
        """The shelf of whoever sent a request."""
        return cls(ctx.lifespan_context, account_of(ctx), client_of(ctx))

    @property
    def book(self) -> ServerBook:
        """The book as the tools see it."""
        return ServerBook(self.services, self.account, self.client)

    async def runs(self, limit: int = MOST_RUNS) -> tuple[RunRow, ...]:
        """The newest runs of the account."""
        records = await self.services.ledger.do(lambda ledger: ledger.runs(self.account, limit=limit))
        return tuple(
            RunRow(
                run_id=run.run_id, task=run.task_name, rule=run.rule, device=run.device_kind,
                created_utc=run.created_utc, closed=run.closed or "",
            )
            for run in records
        )  # fmt: skip

    async def run_list(self) -> RunList:
        """The newest runs, as a reply."""
        found = await self.runs(MOST_RUNS + 1)
        rows = found[:MOST_RUNS]
        more = f"; these are the newest {MOST_RUNS}, the command `kernelgate runs` lists all" if found != rows else ""
        steps = (NextStep(tool="list_tasks", arguments={}, why="choose a task for start_run"),)
        if rows:
            steps = (NextStep(tool="get_budget", arguments={"run_id": rows[0].run_id}, why="how the newest stands"),)
        summary = (
            f"{len(rows)} run{'' if len(rows) == 1 else 's'}, {sum(not run.closed for run in rows)} of them open{more}."
        )
        return RunList(summary=summary, runs=rows, next_steps=steps, ledger_head=await self.book.head())

    async def run_ledger(self, run_id: RunId) -> RunLedger:
        """What was spent of a run per tool, and its last rows."""
        await self.services.run(self.account, run_id)

        def looking(ledger: Ledger) -> tuple[dict[str, float], tuple[LedgerRow, ...]]:
            return spent_per_rung(ledger, run_id), recent_rows(ledger, run_id, limit=MOST_ROWS)

        spent, rows = await self.services.ledger.do(looking)
        return RunLedger(
            summary=f"{run_id}: {sum(spent.values()):.2f} device seconds settled; its last {len(rows)} rows.",
            run_id=run_id,
            spent_s={TOOL_OF_RUNG[Rung(rung)]: seconds for rung, seconds in spent.items()},
            rows=rows,
            ledger_head=await self.book.head(),
        )

    async def run_ids(self, begin: str, limit: int) -> tuple[RunId, ...]:
        """Ids of the account's runs that begin so, newest first."""
        return await self._ids("SELECT run_id AS id FROM runs r WHERE account_id = ? AND", begin, limit)

    async def candidate_ids(self, begin: str, limit: int, run_id: RunId | None = None) -> tuple[CandidateId, ...]:
        """Ids of the account's candidates, of one run or of all, that begin so, newest first."""
        of_run = "" if run_id is None else "r.run_id = ? AND"
        sql = f"SELECT candidate_id AS id FROM candidates r JOIN runs USING (run_id) WHERE account_id = ? AND {of_run}"
        return await self._ids(sql, begin, limit, *(() if run_id is None else (run_id,)))

    async def _ids(self, sql: str, begin: str, limit: int, *values: str) -> tuple[str, ...]:
        # Not LIKE: what a client typed may hold its wildcards.
        whole = f"{sql} substr(id, 1, ?) = ? ORDER BY r.number DESC LIMIT ?"
        rows = await self.services.ledger.do(
            lambda ledger: ledger.query(whole, self.account, *values, len(begin), begin, limit)
        )
        return tuple(row["id"] for row in rows)

    def devices(self) -> tuple[str, ...]:
        """Names of the devices that a run can be on."""
        return ("cpu", *(f"cuda:{index}" for index, gpu in enumerate(list_gpus()) if not gpu.problem))

"""`job`: wait for work in progress, or stop it."""

from typing import Final, Literal

from kernelgate.budget.model import JobId
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.arguments import WaitSeconds
from kernelgate.tools.kit.book import Book
from kernelgate.tools.kit.envelope import Answer, JobView, NextStep
from kernelgate.tools.kit.spec import BookTool


class JobArgs(Frozen):
    """Which job, and what to do."""

    job_id: JobId
    action: Literal["wait", "cancel"] = "wait"
    """`cancel` stops the work; what it used is charged."""
    wait_s: WaitSeconds = 40.0


class JobReport(Answer):
    """How the job stands; of a finished one, the reply."""

    job_id: JobId
    job: JobView


async def answer(book: Book, args: JobArgs) -> JobReport:
    """Wait, or cancel and wait."""
    view = await book.job(args.job_id, wait_s=args.wait_s, cancel=args.action == "cancel")
    running = view.state in ("queued", "running")
    again = NextStep(tool="job", arguments={"job_id": view.job_id}, why="wait for it, or cancel it")
    steps = (again,) if running else await book.next_steps(view.run_id, view.candidate_id)
    ended = {
        "done": "has finished: its reply is in job.reply",
        "cancelled": "was cancelled; what it used was charged",
        "lost": "was lost with its server; what had finished is in the book: ask again to start it anew",
    }
    silent = f"; {view.stage}" if view.stage and view.done is None else ""
    going_on = f"is {view.state} for {view.elapsed_s:.0f} s: call job again{silent}"
    summary = f"{view.job_id} ({view.tool}) {ended.get(view.state, going_on)}"
    return JobReport(
        status="running" if running else "ok",
        summary=summary,
        job_id=view.job_id,
        job=view,
        next_steps=steps,
        ledger_head=await book.head(),
    )


TOOL: Final = BookTool(
    name="job",
    title="Wait for or cancel work",
    description=(
        "A rung that takes longer than its wait_s answers with a job_id. Call this to wait for its reply (the work "
        "goes on meanwhile) or to cancel it. Asking the same rung again joins the same job. Free."
    ),
    args=JobArgs,
    report=JobReport,
    read_only=False,
    answer=answer,
)

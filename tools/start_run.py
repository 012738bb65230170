"""`start_run`: open a run of one task under a budget and a rule."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from kernelgate.budget.model import Budget, RunId
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit import hidden
from kernelgate.tools.kit.arguments import DeviceName
from kernelgate.tools.kit.book import Book, CandidateRow, Resumed, RunView, RunWish, ToolMistake
from kernelgate.tools.kit.envelope import Answer
from kernelgate.tools.kit.spec import BookTool

MOST: Final = 1e7
"""Beyond any cap: the server's own is told when it is exceeded."""


class StartRunArgs(Frozen):
    """What to optimise, and with how much."""

    task: str
    """Name from list_tasks."""
    rule: Literal["", "halving", "threshold", "flat"] = ""
    """Who may enter precise_time: `halving` (unless the server has another default) the best quarter at quick_time,
    `threshold` whoever may reach 1x, `flat` all."""
    device_s: float | None = Field(default=None, gt=0, le=MOST)
    """Device seconds to grant, up to the server's cap (the default)."""
    deadline_s: float | None = Field(default=None, gt=0, le=MOST)
    """Wall-clock seconds of work."""
    precise_calls: int | None = Field(default=None, ge=0, le=1_000_000)
    """How often precise_time may be called."""
    device: DeviceName = ""
    """`cpu`, `cuda:0`, a GPU's UUID; default is the server's."""
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    """The same key with the same arguments returns the same run."""
    resume: RunId | None = None
    """Go on with this run of the task instead, after a server or client ended."""


class RunStarted(Answer):
    """The run that was opened."""

    run: RunView


async def answer(book: Book, args: StartRunArgs) -> RunStarted:
    """Open the run, or return the one of that key; blocks while the task qualifies and its own kernel climbs."""
    if args.resume is not None:
        return await _resumed(book, args, args.resume)
    wished = {
        name: value
        for name, value in (
            ("device_s", args.device_s),
            ("deadline_s", args.deadline_s),
            ("precise_calls", args.precise_calls),
        )
        if value is not None
    }
    run = await book.start_run(
        RunWish(
            task=args.task,
            rule=args.rule,
            budget=Budget.model_validate(wished),
            asked=tuple(sorted(wished)),
            device=args.device,
            idempotency_key=args.idempotency_key,
        )
    )
    shapes = hidden.counted(await book.task(args.task), "cpu" if run.device == "cpu" else "cuda")
    own = await book.candidates(run.run_id)
    first = f" Your own kernel is {_told(own[0])}." if own else ""
    on_cpu = await book.why_on_cpu(args.device) if run.device == "cpu" else ""
    return RunStarted(
        summary=(
            f"{run.run_id} on {run.task}, device {run.device} with {shapes}, rule {run.rule}: "
            f"{run.remaining.device_s:.1f} {run.device_unit} and {run.remaining.precise_calls} precise timings "
            f"to spend.{first}{' ' if on_cpu else ''}{on_cpu} Submit a candidate with compile."
        ),
        run=run,
        next_steps=await book.next_steps(run.run_id, None),
        ledger_head=await book.head(),
    )


def _told(own: CandidateRow) -> str:
    ratio = "" if own.ratio is None else f", {own.ratio:.3f}x ({own.low:.3f}x to {own.high:.3f}x) by {own.ratio_rung}"
    return f"{own.candidate_id}: {own.verdict or 'not judged'}{ratio}"


async def _resumed(book: Book, args: StartRunArgs, run_id: RunId) -> RunStarted:
    if args.model_copy(update={"resume": None}) != StartRunArgs(task=args.task):
        raise ToolMistake("start_run: resume goes with task alone: a run keeps its rule, budget and device.")
    resumed = await book.resume_run(run_id, args.task)
    run = resumed.run
    moved = (
        "" if resumed.same_environment
        else " The environment is another one than before: candidates start again at check_correctness."
    )  # fmt: skip
    return RunStarted(
        summary=(
            f"{run.run_id} on {run.task} goes on: {run.remaining.device_s:.1f} {run.device_unit} and "
            f"{run.remaining.precise_calls} precise timings are left.{_loss(resumed)}{moved} "
            "Submit a candidate with compile."
        ),
        run=run,
        next_steps=await book.next_steps(run.run_id, None),
        ledger_head=await book.head(),
    )


def _loss(resumed: Resumed) -> str:
    if not resumed.lost:
        return ""
    more = f" and {resumed.lost_beside} more" if resumed.lost_beside else ""
    return f" {', '.join(resumed.lost)}{more} lost with their server; what they held is free again."


TOOL: Final = BookTool(
    name="start_run",
    title="Start a run",
    description=(
        "Open an optimisation run of one task: grants a budget (device seconds, calls per rung) and fixes the rule "
        "that promotes candidates. Returns run_id, needed by compile. May take long, and has no job_id: the first run "
        "of a task checks that the task itself is sound (seconds, at most two minutes; free), and the user's own "
        "kernel, if the task names one, first climbs to precise_time (some 15 s on a CPU, charged). A run lives until "
        "it is closed or idle for 24 h."
    ),
    args=StartRunArgs,
    report=RunStarted,
    read_only=False,
    answer=answer,
)

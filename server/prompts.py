"""Prompts: the loop and the audit as a person may ask for them; each step names a tool with its arguments."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import mcp.types as types
from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from kernelgate.budget.errors import one_line
from kernelgate.budget.model import RunId
from kernelgate.server import replies
from kernelgate.server.caller import Context
from kernelgate.server.shelf import Shelf
from kernelgate.server.told import as_protocol_errors
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.arguments import DeviceName
from kernelgate.tools.kit.book import ToolMistake

MOST_GOAL: Final = 500
"""Characters of a goal: a sentence or two, not a document."""


class OptimiseArgs(Frozen):
    """What to make faster."""

    task: Annotated[str, StringConstraints(max_length=200)]
    """Name from list_tasks."""
    device: DeviceName = ""
    """`cpu`, `cuda:0`, a GPU's UUID; default is the server's."""
    device_s: float | None = Field(default=None, gt=0, le=1e7)
    """Device seconds to spend; default is the server's cap."""
    goal: Annotated[str, StringConstraints(max_length=MOST_GOAL), AfterValidator(one_line)] = ""
    """What is enough, in a sentence: `1.5x` or `beat my kernel`."""


class AuditArgs(Frozen):
    """What to look into."""

    run_id: RunId
    """From start_run."""


OPTIMISE: Final = """\
Make the kernel of task {task} faster with the tools of kernelgate, within the budget of one run.{goal}

1. Read it: get_task(task="{task}").
2. Open a run: start_run(task="{task}"{more}). Keep its run_id: start_run(task="{task}", resume=RUN_ID) goes on with it.
3. Say in a sentence what bounds the kernel and what change would help. Write candidate.py with class ModelNew, then \
compile(run_id=RUN_ID, source=SOURCE, note=HYPOTHESIS, up_to="quick_time"): it stops at the first rung that fails.
4. Read status. running: job(job_id=JOB_ID). failed: mend what summary names. refused: refusal.missing says what is \
missing; take the cheapest step of next_steps that is allowed.
5. If quick_time says maybe_faster or undecided and precise_time is among the allowed next_steps: \
precise_time(candidate_id=CANDIDATE_ID). Only its verdict `faster` counts as a gain.
6. Ask why: profile(candidate_id=CANDIDATE_ID). It names one fault to mend first.
7. Choose what to change next: list_candidates(run_id=RUN_ID, order="parents"). Then compile(run_id=RUN_ID, \
source=SOURCE, parent_id=PARENT_ID, note=WHAT_CHANGED_AND_WHY, up_to="quick_time"), and go on with step 4.
8. Stop when stop_advice says so, or get_budget(run_id=RUN_ID) shows that nothing more can be paid. Report the first \
of list_candidates(run_id=RUN_ID): candidate_id, ratio with low and high, and the ledger_head of that reply.

Write for every size: inputs are secret, and some shapes are hidden. The same source is answered from the book, free.
"""
AUDIT: Final = """\
Find out whether the result of run {run_id} can be believed. All calls below are free; start no measurement.

1. The purse: get_budget(run_id="{run_id}"). Keep ledger_head; note the device, the rule, noise_floor and the incumbent.
2. The candidates: list_candidates(run_id="{run_id}", order="best"). Is the first one's furthest rung `precise` with \
verdict `faster`, and does its low stay above 1 + noise_floor?
3. Of that one: get_candidate(candidate_id=CANDIDATE_ID). Was it `correct` before it was timed? Which codes did it get?
4. Its source: get_candidate(candidate_id=CANDIDATE_ID, text="candidate.py", limit=400). Does it compute its answer \
anew in each call, for any size, with nothing kept from earlier calls and nothing made for known shapes?
5. Its timed blocks: get_candidate(candidate_id=CANDIDATE_ID, detail="samples"). Do baseline and candidate spread \
alike? How many do not count, and why?
6. If you can read resources: kernelgate://runs/{run_id}/ledger. Is there an `override`, and what was its reason? \
Does spent_s agree with step 1?
7. Ask the user to run `kernelgate audit --run {run_id} --head HEAD` with the ledger_head of step 1: it verifies the \
hash chain, the sums and every decision, and that nothing was cut off since.

Report in three lines: what holds, what does not, what could not be seen.
"""


@dataclass(frozen=True)
class Written:
    """One prompt: its arguments, and how its text is made."""

    name: str
    title: str
    description: str
    args: type[Frozen]
    write: Callable[[Shelf, Any], Awaitable[str]]

    @property
    def listed(self) -> types.Prompt:
        """As clients see it."""
        arguments = [
            types.PromptArgument(name=name, description=field.description, required=field.is_required())
            for name, field in self.args.model_fields.items()
        ]
        return types.Prompt(name=self.name, title=self.title, description=self.description, arguments=arguments)


async def _optimise(shelf: Shelf, args: OptimiseArgs) -> str:
    task = shelf.services.task(args.task)
    if args.device:
        shelf.services.device(args.device)
    more = f', device="{args.device}"' if args.device else ""
    more += "" if args.device_s is None else f", device_s={args.device_s:.12g}"
    return OPTIMISE.format(task=task.name, more=more, goal=f" Goal: {args.goal.rstrip('.')}." if args.goal else "")


async def _audit(shelf: Shelf, args: AuditArgs) -> str:
    run = await shelf.services.run(shelf.account, args.run_id)
    return AUDIT.format(run_id=run.run_id)


PROMPTS: Final = (
    Written(
        "audit", "Audit a run", "Check, without spending anything, whether a run's result can be believed.", AuditArgs,
        _audit,
    ),
    Written(
        "optimise", "Optimise a kernel", "Make a task's kernel faster under a budget: the whole loop, step by step.",
        OptimiseArgs, _optimise,
    ),
)  # fmt: skip


def found(name: str) -> Written:
    """The prompt of that name; raises `ToolMistake`."""
    for prompt in PROMPTS:
        if prompt.name == name:
            return prompt
    raise ToolMistake(f"There is no prompt {name[:80]!a}. The prompts are: {', '.join(p.name for p in PROMPTS)}.")


async def on_list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    """All prompts; they never change."""
    return types.ListPromptsResult(prompts=[prompt.listed for prompt in PROMPTS])


async def on_get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    """The text of one prompt."""
    with as_protocol_errors("a prompt"):
        prompt = found(params.name)
        text = await prompt.write(Shelf.of(ctx), _arguments(prompt, params.arguments or {}))
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])


def _arguments(prompt: Written, given: Mapping[str, str]) -> Frozen:
    """All arguments come as text; what a client leaves empty is not given."""
    filled = {name: value for name, value in given.items() if value}
    try:
        args: Frozen = prompt.args.model_validate_strings(filled)
    except ValidationError as error:
        raise ToolMistake(replies.argument_mistakes(prompt.name, prompt.args, error)) from None
    return args

"""Resources: the look-ups of the tools once more, by address, for people who point at them.

Each is answered by the tool that it names, or by what that tool reads. An address is matched letter by letter against
the patterns below and never decoded, joined to a path or opened.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp.types as types
from pydantic import JsonValue

from kernelgate.server import replies
from kernelgate.server.caller import Context
from kernelgate.server.shelf import Shelf
from kernelgate.server.told import as_protocol_errors
from kernelgate.tasks.model import Frozen
from kernelgate.tools import get_budget, get_candidate, get_task, list_candidates, list_tasks
from kernelgate.tools.kit.book import ToolMistake
from kernelgate.tools.kit.spec import BookTool

SCHEME: Final = "kernelgate://"
JSON: Final = "application/json"
MOST_BYTES: Final = 64_000
"""About 16,000 tokens: a host may put a resource into the context whole. Longer ones say which call has the rest."""
MOST_LISTED: Final = 20
"""Runs in the list of resources, newest first; every other one is read by its template."""
LONGEST: Final = 300
"""Characters of an address; no name that the patterns take needs more."""
PATTERNS: Final = {
    "task": r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*",  # `group/name` where a name was taken
    "run_id": r"r[1-9][0-9]{0,17}",
    "candidate_id": r"c[1-9][0-9]{0,17}",
    "text": r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}",
}
"""What may stand for a variable of a template."""

Values = Mapping[str, str]


@dataclass(frozen=True)
class View:
    """One resource, or all that fit one template."""

    template: str
    name: str
    title: str
    description: str
    read: Callable[[Shelf, Values], Awaitable[str]]
    moves: bool = False
    """Whether work on runs changes it, so that a client may ask to be told."""
    mime_type: str = JSON

    @property
    def variables(self) -> tuple[str, ...]:
        """Names in the template, in order."""
        return tuple(re.findall(r"\{(\w+)\}", self.template))

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables in an address of this template; None for any other address."""
        pattern = re.escape(self.template)
        for name in self.variables:
            pattern = pattern.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>{PATTERNS[name]})")
        found = re.fullmatch(pattern, uri)
        return None if found is None else found.groupdict()


def _by_tool(tool: BookTool[Any, Any]) -> Callable[[Shelf, Values], Awaitable[str]]:
    """What a tool answers to the variables of a template."""

    async def read(shelf: Shelf, values: Values) -> str:
        report: Frozen = await tool.answer(shelf.book, tool.args.model_validate(dict(values)))
        return bounded(report, _call(tool.name, values))

    return read


async def _runs(shelf: Shelf, values: Values) -> str:
    return bounded(await shelf.run_list(), "the command `kernelgate runs`")


async def _ledger(shelf: Shelf, values: Values) -> str:
    return bounded(await shelf.run_ledger(values["run_id"]), "the command `kernelgate export`")


async def _text(shelf: Shelf, values: Values) -> str:
    text = await shelf.book.text(values["candidate_id"], values["text"])
    return cut(text, lambda line: _call("get_candidate", {**values, "offset": line}))


VIEWS: Final = (
    View(
        "kernelgate://tasks", "tasks", "Tasks", "The kernels that can be optimised here: the first page of list_tasks.",
        _by_tool(list_tasks.TOOL),
    ),
    View(
        "kernelgate://tasks/{task}", "task", "One task",
        "Reference source, public workloads, tolerances: what get_task answers.", _by_tool(get_task.TOOL),
    ),
    View(
        "kernelgate://runs", "runs", "Runs", "The newest runs with task and device, and which are open.", _runs,
        moves=True,
    ),
    View(
        "kernelgate://runs/{run_id}", "run", "One run",
        "Purse, prices, incumbent and next steps: what get_budget answers.", _by_tool(get_budget.TOOL), moves=True,
    ),
    View(
        "kernelgate://runs/{run_id}/candidates", "candidates", "Candidates of a run",
        "Best first, with verdict, speed-up and cost: what list_candidates answers.", _by_tool(list_candidates.TOOL),
        moves=True,
    ),
    View(
        "kernelgate://runs/{run_id}/ledger", "ledger", "Ledger of a run",
        "What was spent per tool, and the last rows of the book: holds, settlements, refusals, promotions.", _ledger,
        moves=True,
    ),
    View(
        "kernelgate://candidates/{candidate_id}", "candidate", "One candidate",
        "Every result with its numbers, and the names of its texts: what get_candidate answers.",
        _by_tool(get_candidate.TOOL), moves=True,
    ),
    View(
        "kernelgate://candidates/{candidate_id}/texts/{text}", "text", "A text of a candidate",
        "A source file such as candidate.py, or an artifact such as output.log.", _text, mime_type="text/plain",
    ),
)  # fmt: skip
TEMPLATES: Final = tuple(
    types.ResourceTemplate(
        uri_template=view.template, name=view.name, title=view.title, description=view.description,
        mime_type=view.mime_type,
    )
    for view in VIEWS if view.variables
)  # fmt: skip
FIXED: Final = tuple(
    types.Resource(
        uri=view.template, name=view.name, title=view.title, description=view.description, mime_type=view.mime_type
    )
    for view in VIEWS if not view.variables
)  # fmt: skip


def parsed(uri: str) -> tuple[View, dict[str, str]]:
    """The resource at an address; raises `ToolMistake` for everything that is none, letter by letter."""
    for view in VIEWS if len(uri) <= LONGEST else ():
        values = view.match(uri)
        if values is not None:
            return view, values
    # In ASCII: a letter that only looks like another one is seen to be another one.
    shown = ascii(uri if len(uri) <= 80 else f"{uri[:80]}...")
    raise ToolMistake(
        f"There is no resource {shown}. The resources are: {', '.join(view.template for view in VIEWS)}; ids look like "
        "r1 and c1, and nothing in an address is escaped."
    )


async def known(shelf: Shelf, values: Values) -> None:
    """Ask for the run or candidate that an address names; raises `ToolMistake` for one of another account, or none."""
    if "run_id" in values:
        await shelf.services.run(shelf.account, values["run_id"])
    if "candidate_id" in values:
        await shelf.services.candidate(shelf.account, values["candidate_id"])


async def on_list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    """The lists, then the newest runs of the account."""
    with as_protocol_errors("the list of resources"):
        runs = await Shelf.of(ctx).runs(MOST_LISTED)
        view, _ = parsed("kernelgate://runs/r1")
        listed = [
            types.Resource(
                uri=f"kernelgate://runs/{run.run_id}", name=run.run_id, title=f"{run.run_id}: {run.task}",
                description=f"A run of {run.task}, device {run.device}: {view.description}", mime_type=view.mime_type,
            )
            for run in runs
        ]  # fmt: skip
        return types.ListResourcesResult(resources=[*FIXED, *listed])


async def on_list_templates(
    ctx: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    """All templates; they never change."""
    return types.ListResourceTemplatesResult(resource_templates=list(TEMPLATES))


async def on_read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    """One resource, as text."""
    with as_protocol_errors("reading a resource", {"uri": params.uri[:LONGEST]}):
        view, values = parsed(params.uri)
        text = await view.read(Shelf.of(ctx), values)
        contents = types.TextResourceContents(uri=params.uri, mime_type=view.mime_type, text=text)
        return types.ReadResourceResult(contents=[contents])


def bounded(report: Frozen, elsewhere: str) -> str:
    """A reply as JSON, or where it would be too long its summary, and what has the whole."""
    slim = replies.pruned(report.model_dump(mode="json"))
    text = replies.json_of(slim)
    size = len(text.encode())
    if size <= MOST_BYTES:
        return text
    summary: JsonValue = slim.get("summary", "") if isinstance(slim, dict) else ""
    why = f"{size:,} bytes are too many for a resource (at most {MOST_BYTES:,}): {elsewhere} has the whole"
    return replies.json_of({"summary": summary, "left_out": why})


def cut(text: str, elsewhere: Callable[[int], str]) -> str:
    """A text up to the last line that fits, and behind it the call that reads on.

    Args:
        text: the whole.
        elsewhere: the call that reads from a line on, lines counted from 0.
    """
    whole = text.encode()
    if len(whole) <= MOST_BYTES:
        return text
    head = whole[:MOST_BYTES].decode("utf-8", "ignore")
    shown = head[: head.rfind("\n") + 1] or f"{head}\n"
    # As `get_candidate` counts them; a single line that is too long is read on from its start.
    line = len(shown.splitlines()) if "\n" in head else 0
    return f"{shown}… cut: {len(whole):,} bytes are too many for a resource. {elsewhere(line)} reads on."


def _call(tool: str, arguments: Mapping[str, object]) -> str:
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"

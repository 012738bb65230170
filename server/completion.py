"""Completion: the ids that the caller may name, for arguments of prompts and variables of resource templates."""

from collections.abc import Iterable, Sequence
from typing import Final

import anyio
import mcp.types as types

from kernelgate.server.caller import Context
from kernelgate.server.prompts import found
from kernelgate.server.resources import VIEWS, parsed
from kernelgate.server.shelf import Shelf
from kernelgate.server.told import as_protocol_errors
from kernelgate.tools.kit.book import ToolMistake

MOST: Final = 100
"""Values in one answer; the protocol allows no more."""
LONGEST: Final = 200
"""Characters that a name may begin with; nothing that is completed is longer."""


async def on_completion(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    """The values that begin like what was typed, at most so many."""
    with as_protocol_errors("a completion"):
        name, begin = params.argument.name, params.argument.value
        _require(params.ref, name)
        before = (params.context.arguments if params.context else None) or {}
        values = await _values(Shelf.of(ctx), name, begin, before) if len(begin) <= LONGEST else ()
        shown = list(values[:MOST])
        total = len(values) if len(values) <= MOST else None  # more were not counted
        return types.CompleteResult(completion=types.Completion(values=shown, total=total, has_more=len(values) > MOST))


def _require(ref: types.PromptReference | types.ResourceTemplateReference, name: str) -> None:
    """Raise `ToolMistake` for a prompt, a template or an argument that is not there."""
    if isinstance(ref, types.PromptReference):
        place, known = f"prompt {ref.name}", tuple(found(ref.name).args.model_fields)
    else:
        view = next((view for view in VIEWS if view.template == ref.uri), None)
        view = view or parsed(ref.uri)[0]  # a whole address has nothing to complete, but is no mistake
        place, known = view.template, view.variables
    if name not in known:
        raise ToolMistake(f"{place} has no argument {name[:80]!a}; it has: {', '.join(known) or 'none'}.")


async def _values(shelf: Shelf, name: str, begin: str, before: dict[str, str]) -> Sequence[str]:
    """One more than are shown, where there are more."""
    if name == "run_id":
        return await shelf.run_ids(begin, MOST + 1)
    if name == "candidate_id":
        return await shelf.candidate_ids(begin, MOST + 1, before.get("run_id"))
    if name == "task":
        return _begin(begin, (row.name for row in await shelf.book.tasks() if not row.unavailable))
    if name == "device":
        return _begin(begin, await anyio.to_thread.run_sync(shelf.devices))
    if name == "text" and before.get("candidate_id"):
        view = await shelf.book.candidate(before["candidate_id"])
        return _begin(begin, (text.name for text in view.artifacts))
    return ()


def _begin(begin: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(begin)]

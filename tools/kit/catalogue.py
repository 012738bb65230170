"""Finds the tools: each plain module of the `tools` folder defines one `TOOL` named like its file."""

import functools
import importlib
import json
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

import kernelgate.tools
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit import house
from kernelgate.tools.kit.spec import BookTool, MeasuringTool

AnyTool = MeasuringTool[Any, Any, Any, Any, Any] | BookTool[Any, Any]


@functools.cache
def find_tools() -> tuple[AnyTool, ...]:
    """All tools in order of name. A module without its `TOOL` is an error, never skipped.

    The folder is walked once: the worker's confined children cannot see it.
    """
    found: list[AnyTool] = []
    for module in sorted(pkgutil.iter_modules(kernelgate.tools.__path__), key=lambda m: m.name):
        if module.ispkg:
            continue
        tool: Any = getattr(importlib.import_module(f"kernelgate.tools.{module.name}"), "TOOL", None)
        if type(tool) not in (MeasuringTool, BookTool) or tool.name != module.name:
            raise TypeError(f"tools/{module.name}.py must define TOOL with name={module.name!r}")
        found.append(tool)
    return tuple(found)


@dataclass(frozen=True)
class Procedure:
    """What the worker runs for a request: validated plan in, facts out."""

    name: str
    run: Callable[[Any, dict[str, JsonValue]], Frozen]
    """(bench, plan as JSON) → facts."""


def procedure(name: str) -> Procedure:
    """The procedure of a measuring tool, or one of the house (`qualify`, `probe`); raises KeyError."""
    procedures = {p.name: p for p in house.PROCEDURES}
    chosen: Any = procedures.get(name)
    if chosen is None:
        chosen = {tool.name: tool for tool in find_tools() if isinstance(tool, MeasuringTool)}[name]

    def run(bench: Any, plan: dict[str, JsonValue]) -> Frozen:
        facts: Frozen = chosen.measure(bench, chosen.plan.model_validate_json(json.dumps(plan, allow_nan=False)))
        return facts

    return Procedure(name=name, run=run)

"""Promotion rules, one file each: found by a sorted walk that fails loudly."""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, TypeAlias

from kernelgate.budget.model import Decision
from kernelgate.budget.promotion import Rule

Rules: TypeAlias = Mapping[str, Rule[Any]]


def find_rules() -> Rules:
    """Each rule of this folder by its name, sorted.

    Raises:
        TypeError: a file of the folder defines no `RULE`, or one that is not named like the file.
    """
    found: dict[str, Rule[Any]] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        rule = getattr(importlib.import_module(f"{__name__}.{name}"), "RULE", None)
        if not isinstance(rule, Rule) or rule.name != name:
            raise TypeError(f"budget/rules/{name}.py must define RULE, a Rule named {name!r}")
        found[name] = rule
    return found


def replay(decision: Decision, rules: Rules) -> Decision:
    """Decide again from what the decision says it saw; an honest decision comes out equal.

    Raises:
        LookupError: the rule is unknown here, or has another version now.
    """
    rule = rules.get(decision.rule)
    if rule is None or rule.version != decision.rule_version:
        raise LookupError(f"rule {decision.rule} version {decision.rule_version} is not part of this kernelgate")
    seen = rule.seen.model_validate(decision.saw, strict=False)
    again: Decision = rule.decide_from(seen, decision.parameters)
    return again

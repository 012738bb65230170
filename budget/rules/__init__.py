"""Promotion rules, one file each: found by a sorted walk that fails loudly."""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, TypeAlias

from kernelgate.budget.earlier_rules import EARLIER
from kernelgate.budget.errors import RuleNotHere
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


def rule_of(name: str, version: int, rules: Rules) -> Rule[Any]:
    """A rule as it was when a run began: a run keeps its version, and an auditor asks that one again.

    Raises:
        RuleNotHere: the rule is unknown here, or this version of it.
    """
    rule = rules.get(name)
    if rule is not None and rule.version == version:
        return rule
    if (name, version) in EARLIER:
        return EARLIER[name, version]
    raise RuleNotHere(f"rule {name} version {version} is not part of this kernelgate")


def replay(decision: Decision, rules: Rules) -> Decision:
    """Decide again from what the decision says it saw; an honest decision comes out equal.

    Raises:
        RuleNotHere: the rule is unknown here, or this version of it.
    """
    rule = rule_of(decision.rule, decision.rule_version, rules)
    seen = rule.seen.model_validate(decision.saw, strict=False)
    again: Decision = rule.decide_from(seen, decision.parameters)
    return again

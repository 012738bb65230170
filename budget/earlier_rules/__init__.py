"""Rules as they were: no run begins under them, but their decisions stand in books and are replayed. Never changed."""

from collections.abc import Mapping
from typing import Any, Final

from kernelgate.budget.earlier_rules import halving_1
from kernelgate.budget.promotion import Rule

EARLIER: Final[Mapping[tuple[str, int], Rule[Any]]] = {(rule.name, rule.version): rule for rule in (halving_1.RULE,)}
"""By name and version."""

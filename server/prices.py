"""What a call holds, what it takes most often, and with how little left it is refused. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from kernelgate.budget.model import Rung
from kernelgate.budget.outcomes import LearnedPrice, Prices
from kernelgate.tools.kit.spec import MeasuringTool

LEAST_HOLD_S: Final = 0.05
"""With less left than this a call is refused: nothing can be measured in it."""
USEFUL_SHARE: Final = 0.5
"""With less of what a call usually takes it would be cut before it tells anything, and charged all the same."""


def hold_and_usual_s(tool: MeasuringTool[Any, Any, Any, Any, Any], learned: LearnedPrice | None) -> tuple[float, float]:
    """Device seconds that a call holds, and what one takes most often (0 if unknown)."""
    hold_s = learned.hold_device_s if learned else tool.first_hold_s
    return min(hold_s, tool.limit_s), learned.device_s_median if learned else 0.0


def least_device_s(hold_s: float, usual_s: float) -> float:
    """The least of a hold for which a call is worth starting: with half of what it takes most often it would be cut."""
    return min(hold_s, max(LEAST_HOLD_S, USEFUL_SHARE * usual_s))


def expected_s(tools: Mapping[Rung, MeasuringTool[Any, Any, Any, Any, Any]], prices: Prices) -> dict[Rung, float]:
    """Expected device seconds per rung: the median of past calls, else the first guess."""
    return {
        rung: 0.0
        if rung is Rung.compile
        else round(prices[rung].device_s_median, 4)
        if rung in prices
        else tool.first_hold_s / 4
        for rung, tool in tools.items()
    }


def leasts_s(tools: Mapping[Rung, MeasuringTool[Any, Any, Any, Any, Any]], prices: Prices) -> dict[Rung, float]:
    """Device seconds per rung; with less of them left a call is refused."""
    return {
        rung: least_device_s(*hold_and_usual_s(tool, prices.get(rung)))
        for rung, tool in tools.items()
        if rung is not Rung.compile
    }

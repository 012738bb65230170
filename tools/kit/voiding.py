"""Which pairs do not count: the device was held back, or not yet at its clock. Pure."""

from collections.abc import Sequence
from typing import Final

from kernelgate.tools.kit.facts import DeviceState

HELD_BACK: Final[dict[int, str]] = {
    0x08: "held back by its hardware",
    0x20: "too hot",
    0x40: "too hot",
    0x80: "short of power",
}
"""Bits of NVML. Not its power cap (0x04): a heavy kernel runs at that all the time, and so does its baseline."""
STEADY: Final = 0.03
"""A clock that moves by less from one pair to the next stands."""
MOST_WARMING: Final = 8
"""So many pairs may go by until the clock stands; after that it is measured as it is."""


def held_back(state: DeviceState | None) -> str:
    """What slowed the device down; empty if nothing did, or if it does not tell."""
    reasons = state.throttle_reasons if state is not None else 0
    return " and ".join(dict.fromkeys(why for bit, why in HELD_BACK.items() if reasons & bit))


def still_warming(before: DeviceState | None, after: DeviceState | None) -> bool:
    """Whether the clock moved over a pair."""
    if before is None or after is None or not before.sm_clock_mhz or not after.sm_clock_mhz:
        return False
    return abs(after.sm_clock_mhz / before.sm_clock_mhz - 1) > STEADY


def why_void(before: DeviceState | None, after: DeviceState | None, *, counted: int, voided: Sequence[str]) -> str:
    """Why a pair between two states does not count; empty if it does.

    `counted`: pairs so far that do; `voided`: why others did not.
    """
    if slowed := held_back(after):
        return f"the device was {slowed}"
    warming = counted == 0 and len(voided) < MOST_WARMING and still_warming(before, after)
    return "the device's clock was still moving" if warming else ""


def said_of(voided: Sequence[str]) -> str:
    """Part of a sentence about pairs that do not count; empty if there are none."""
    if not voided:
        return ""
    each = ", ".join(f"{voided.count(why)} because {why}" for why in dict.fromkeys(voided))
    return f"{len(voided)} pairs do not count: {each}"


def none_left(voided: Sequence[str]) -> str:
    """The sentence where so many pairs do not count that the others give no class."""
    return f"{said_of(voided)}: no class can be given; ask again with fresh when the device has cooled down"

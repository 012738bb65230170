"""Was a refusal true? What the purse lacked and which rung was missing come out of the book again.

`not_here` and `task_unqualified` are decided by the server outside of the book, a cap of an account stands in no event,
and how much a call asked for is only in the refusal's sentence: that much has to be believed.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from kernelgate.budget.audit_rows import EventRow
from kernelgate.budget.model import Purse, Rung

_RAISED: Final = re.compile(r"Hold [0-9]+ cannot be raised: ")
_SECONDS: Final = re.compile(
    r"(?P<left>[0-9]+\.[0-9]{3}) device seconds are left(?P<cap> under the cap of [^\n]{1,300}?)?,"
    r" and (?P<rung>[a-z]+) needs (?P<needed>[0-9]+\.[0-9]{3})\."
)


def untrue(
    event: EventRow, purse: Purse, *, is_closed: bool, below: Mapping[str, Collection[str]], environment_id: str
) -> str | None:
    """What is untrue about a refusal, as a sentence; None where the book agrees or cannot tell.

    Args:
        event: the refusal.
        purse: of the run before it.
        is_closed: whether the run was closed before it.
        below: rung that the refused one needs → environments in which the candidate has passed it.
        environment_id: in which the call would have been made.
    """
    kind = event.refusal_kind
    if kind == "rung_missing":
        step = event.missing.partition(":")[0]
        if step not in below:
            return f"The refusal {event.seq} names no rung that {event.rung} needs."
        if environment_id in below[step]:
            return f"The refusal {event.seq} says that {step} is missing, which the candidate had passed."
    elif kind in ("purse", "deadline"):
        lacked = event.reason[found.end() :] if (found := _RAISED.match(event.reason)) else event.reason
        if not (_purse_lacks(lacked, event.rung, purse) if kind == "purse" else _time_lacks(lacked, purse, is_closed)):
            return f"The refusal {event.seq} says something else than the purse did."
    return None


def _purse_lacks(why: str, rung: str, purse: Purse) -> bool:
    if why == f"All {purse.granted.calls(Rung(rung))} {rung} calls of this run are used or held.":
        return purse.calls_left(Rung(rung)) < 1
    said = _SECONDS.match(why)
    if said is None or said["rung"] != rung or float(said["left"]) > float(said["needed"]):
        return False
    left = f"{purse.device_s_left:.3f}"
    return said["left"] == left or (said["cap"] is not None and float(said["left"]) <= float(left))


def _time_lacks(why: str, purse: Purse, is_closed: bool) -> bool:  # noqa: FBT001 -- private, of one call
    if is_closed:
        return " is closed (" in why
    said = f"{purse.deadline_s_left:.1f} s of work are left before the deadline of {purse.granted.deadline_s:g} s."
    return why.startswith(said)

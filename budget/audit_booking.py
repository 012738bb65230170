"""On whose account does an event stand, and may it move anything? Also of events that belong to no run."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kernelgate.budget.audit_rows import EventRow
from kernelgate.budget.model import HOUSE, Budget

_STILL: Final = ("refuse", "note", "close")


def wrong_booking(event: EventRow, account_id: str) -> Iterator[str]:
    """An event is its run's account's, but what the house pays; and only some kinds move anything."""
    if event.kind != "overrun" and event.account_id != account_id:
        yield f"The {event.kind} {event.seq} is booked on {event.account_id}, which is not the run's account."
    if event.kind in _STILL and _moves(event):
        yield f"The {event.kind} {event.seq} carries amounts, and nothing may move."


def wrong_grant(event: EventRow, run: Mapping[str, Any], budget: Budget) -> Iterator[str]:
    """A grant is the run's budget, in its environment."""
    on_gpu = run["device_kind"] == "cuda"
    seconds = (budget.device_s, 0.0) if on_gpu else (0.0, budget.device_s)
    granted = (0, budget.overrides, *seconds, budget.deadline_s, 0.0, run["environment_id"])
    if granted != (
        event.calls, event.override_calls, event.gpu_s, event.cpu_s, event.work_s, event.overrun_s,
        event.environment_id,
    ):  # fmt: skip
        yield f"The grant {event.seq} is not of the run's budget and environment."


def wrong_of_no_run(event: EventRow) -> Iterator[str]:
    """The house notes what it recorded; everything else is a run's."""
    if event.kind != "note":
        yield f"The {event.kind} {event.seq} is of no run."
    elif event.account_id != HOUSE or _moves(event):
        yield f"The note {event.seq} is of no run, and not one that the house makes."


def _moves(event: EventRow) -> bool:
    return any((event.calls, event.override_calls, event.gpu_s, event.cpu_s, event.work_s, event.overrun_s))

"""On whose account does an event stand, and may it move anything? Also of events that belong to no run."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kernelgate.budget.audit_rows import EventRow
from kernelgate.budget.model import ESTIMATED, HOUSE, Budget, ReleaseReason

_LOST: Final[ReleaseReason] = "owner_lost"
_ESTIMATE: Final = ESTIMATED.partition("{")[0]
STILL: Final = ("refuse", "note", "close")
"""Kinds that move nothing."""


def wrong_booking(event: EventRow, account_id: str) -> Iterator[str]:
    """An event is its run's account's, but what the house pays; and only some kinds move anything."""
    if event.kind != "overrun" and event.account_id != account_id:
        yield f"The {event.kind} {event.seq} is booked on {event.account_id}, which is not the run's account."
    if event.kind in STILL and _moves(event):
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


def wrong_after_release(overrun: EventRow, release: EventRow) -> Iterator[str]:
    """What the house pays behind a release is time of the device, for the same reason; of the lost, an estimate."""
    if overrun.reason != release.reason or overrun.work_s or overrun.calls or overrun.override_calls:
        yield f"The overrun {overrun.seq} is not time of the device for the reason of release {release.seq}."
    estimate = ESTIMATED.format(overrun.gpu_s + overrun.cpu_s)
    if overrun.reason.startswith(_LOST) and not overrun.reason.endswith(estimate):
        yield f"The overrun {overrun.seq} is of a lost owner, and does not say that it is estimated and how much."


def says_estimate(release: EventRow) -> bool:
    """Whether a release says that the house pays what was used: then that stands right behind it."""
    return _ESTIMATE in release.reason


def wrong_of_no_run(event: EventRow) -> Iterator[str]:
    """The house notes what it recorded; everything else is a run's."""
    if event.kind != "note":
        yield f"The {event.kind} {event.seq} is of no run."
    elif event.account_id != HOUSE or _moves(event):
        yield f"The note {event.seq} is of no run, and not one that the house makes."


def _moves(event: EventRow) -> bool:
    return any((event.calls, event.override_calls, event.gpu_s, event.cpu_s, event.work_s, event.overrun_s))

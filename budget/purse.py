"""Arithmetic of the purse: what may be held, what is charged. Pure."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Final, Literal, NamedTuple, TypeAlias

from kernelgate.budget.model import ALL_ACCOUNTS, Amount, Budget, Purse, Rung, Spent
from kernelgate.tasks.model import canonical_json

Shortage: TypeAlias = tuple[Literal["purse", "deadline"], str, str]
_SPENT_NAMES: Final = sorted(Spent.model_fields)
_SPENT: Final = "{" + ",".join(f'"{name}":%r' for name in _SPENT_NAMES) + "}"
_SPENT_VALUES: Final[Callable[[Mapping[str, float]], tuple[float, ...]]] = itemgetter(*_SPENT_NAMES)
_NS: Final = 1e-9
_DIGITS: Final = 9
"""Seconds are kept to the nanosecond, so that sums of many rows come out equal wherever they are made."""


class CapLeft(NamedTuple):
    """What is left under the cap that leaves an account least: its own, or that of all accounts together."""

    account: str
    cap_s: float
    """Device seconds of all runs together."""
    left_s: float

    @property
    def named(self) -> str:
        """Whose cap it is, and how much."""
        whose = "all accounts together" if self.account == ALL_ACCOUNTS else f"account {self.account}"
        return f"the cap of {whose} ({self.cap_s:.10g} s)"


def shortage(
    purse: Purse, cap: CapLeft | None, rung: Rung, hold: Amount, least: Amount, own: Amount | None = None
) -> Shortage | None:
    """What the purse lacks for a hold (kind, why, what is missing), or None where enough is left.

    Args:
        purse: of the run.
        cap: of its account; None without one.
        rung: that is asked for.
        hold: wanted.
        least: if less than `hold` is left, so much must be left; zero asks only that something is left.
        own: what the very call holds that asks for more: it is not waited for.
    """
    if purse.calls_left(rung) < hold.calls:
        granted = purse.granted.calls(rung)
        return "purse", f"All {granted} {rung} calls of this run are used or held.", f"A {rung} call in the purse."
    own = own or Amount()
    left_s = device_s_left(purse, cap)
    if not _enough(left_s, hold.gpu_s + hold.cpu_s, least.gpu_s + least.cpu_s):
        needed_s = least.gpu_s + least.cpu_s or hold.gpu_s + hold.cpu_s
        why = f"{left_s:.3f} device seconds are left{under(binding(purse, cap))}, and {rung} needs {needed_s:.3f}."
        missing = f"{needed_s - left_s:.3f} more device seconds"
        held, wait = _under_way(purse.open.device_s - own.gpu_s - own.cpu_s, "device seconds")
        return "purse", why + held, f"{missing}{wait}."
    if not _enough(purse.deadline_s_left, hold.work_s, least.work_s):
        why = f"{purse.deadline_s_left:.1f} s of work are left before the deadline of {purse.granted.deadline_s:g} s."
        held, wait = _under_way(purse.open.work_s - own.work_s, "s of work")
        return "deadline", why + held, f"Time before the deadline{wait or ': a new run has its own'}."
    return None


def _under_way(held: float, unit: str) -> tuple[str, str]:
    """What stands behind why and missing where something is only held: that refusal need not be the last word."""
    if held < _NS:
        return "", ""
    said = f" {held:.3f} {unit} are held by calls under way, and what those do not use comes back."
    return said, ": wait for the calls under way (job), then ask again"


def _enough(left: float, wanted: float, least: float) -> bool:
    return left >= wanted or (left > 0 and left >= least)


def binding(purse: Purse, cap: CapLeft | None) -> CapLeft | None:
    """The cap, where it leaves less than the run's own purse."""
    return cap if cap is not None and cap.left_s < purse.device_s_left else None


def under(cap: CapLeft | None) -> str:
    """What stands behind seconds that are left; nothing without a cap."""
    return "" if cap is None else f" under {cap.named}"


def device_s_left(purse: Purse, cap: CapLeft | None) -> float:
    """Device seconds that may be held: by the run's purse and the account's cap."""
    bound = binding(purse, cap)
    return purse.device_s_left if bound is None else bound.left_s


def trimmed(purse: Purse, cap: CapLeft | None, asked: Amount, *, overridden: bool = False) -> Amount:
    """The amount to hold: what was asked for, cut to what is left."""
    device_s = device_s_left(purse, cap)
    gpu_s = min(asked.gpu_s, device_s)
    return Amount(
        calls=asked.calls,
        override_calls=1 if overridden else 0,
        gpu_s=_seconds(gpu_s),
        cpu_s=_seconds(min(asked.cpu_s, device_s - gpu_s)),
        work_s=_seconds(min(asked.work_s, purse.deadline_s_left)),
    )


def plus(one: Amount, other: Amount) -> Amount:
    """The sum of two amounts."""
    return Amount(
        calls=one.calls + other.calls,
        override_calls=one.override_calls + other.override_calls,
        gpu_s=_seconds(one.gpu_s + other.gpu_s),
        cpu_s=_seconds(one.cpu_s + other.cpu_s),
        work_s=_seconds(one.work_s + other.work_s),
    )


def charge(measured: Amount, held: Amount) -> Amount:
    """What is charged: the smaller of measured and held; calls as they were held."""
    return Amount(
        calls=held.calls,
        override_calls=held.override_calls,
        gpu_s=_seconds(min(measured.gpu_s, held.gpu_s)),
        cpu_s=_seconds(min(measured.cpu_s, held.cpu_s)),
        work_s=_seconds(min(measured.work_s, held.work_s)),
    )


def overrun(measured: Amount, held: Amount) -> Amount:
    """Seconds measured above the hold: of the device and of work. Calls cannot exceed it."""
    return Amount(
        gpu_s=_seconds(max(0.0, measured.gpu_s - held.gpu_s)),
        cpu_s=_seconds(max(0.0, measured.cpu_s - held.cpu_s)),
        work_s=_seconds(max(0.0, measured.work_s - held.work_s)),
    )


def purse_text(purse: Purse) -> str:
    """A purse as the events carry it: canonical JSON, put together by hand because each event has one."""
    return joined_purse(
        granted_text(purse.granted), spent_text(purse.open.__dict__), spent_text(purse.settled.__dict__)
    )


def granted_text(budget: Budget) -> str:
    """The part of a purse's text that stays the same over a run."""
    return _granted_text(tuple(budget.__dict__.items()))


@lru_cache(maxsize=256)
def _granted_text(fields: tuple[tuple[str, int | float | None], ...]) -> str:
    return canonical_json(dict(fields))


def joined_purse(granted: str, opened: str, settled: str) -> str:
    """The text of a purse from those of its parts."""
    return f'{{"granted":{granted},"open":{opened},"settled":{settled}}}'


def spent_text(spent: Mapping[str, float]) -> str:
    """The part of a purse's text for what is open or settled; `spent` has the fields of `Spent`."""
    return _SPENT % _SPENT_VALUES(spent)


def open_text(spent: Mapping[str, float]) -> str:
    """The same for what is open, kept: mostly nothing is, or one hold like those before it. Seconds must be floats."""
    return _open_text(_SPENT_VALUES(spent))


@lru_cache(maxsize=1024)
def _open_text(values: tuple[float, ...]) -> str:
    return _SPENT % values


def _seconds(value: float) -> float:
    return round(float(value), _DIGITS)

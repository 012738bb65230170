"""Time as a port: what the book writes into its rows."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where times in the book come from."""

    def utc(self) -> str:
        """Now, as ISO text with microseconds and a `Z`, such as `2026-05-09T07:35:25.000123Z`."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; its zero is arbitrary."""
        ...


class SystemClock:
    """The host's clocks."""

    def utc(self) -> str:
        """Now, as ISO text with microseconds and a `Z`."""
        return utc_text(datetime.now(UTC))

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment of this boot."""
        return time.monotonic()


def utc_text(moment: datetime) -> str:
    """The one text form of a moment; texts of one form sort by time."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def earlier(utc: str, seconds: float) -> str:
    """The moment so many seconds before `utc`, in the same form."""
    return utc_text(datetime.fromisoformat(utc) - timedelta(seconds=seconds))

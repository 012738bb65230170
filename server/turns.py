"""Whose call is next on a device: that of the account which has had least of it.

One account with a hundred calls keeps another with one call waiting for one of them, not for all. Calls of one account
follow each other as they came.
"""

import itertools
from collections import Counter
from dataclasses import dataclass, field

import anyio


@dataclass(eq=False)
class Ticket:
    """A call in the queue, then on the device. Whoever asked for it calls `done`, whatever happens."""

    account: str
    number: int
    _turns: "Turns"
    granted: bool = False
    _woken: anyio.Event = field(default_factory=anyio.Event)

    async def called(self) -> bool:
        """Wait for the turn; False if it was given up instead."""
        await self._woken.wait()
        return self.granted

    def give_up(self) -> None:
        """Leave the queue; nothing if the turn has come already."""
        self._turns.leave(self)
        self._woken.set()

    def grant(self) -> None:
        """It is this one's turn."""
        self.granted = True
        self._woken.set()

    def done(self, used_s: float) -> None:
        """The call has ended and had the device for so long; in the queue it is left without having had it."""
        self._turns.leave(self)
        self._turns.end(self, used_s)


class Turns:
    """The queue before one device."""

    def __init__(self, places: int) -> None:
        """So many calls are let through at once."""
        self._free = places
        self._numbers = itertools.count()
        self._waiting: list[Ticket] = []
        self._open: Counter[str] = Counter()
        self._had_s: dict[str, float] = {}

    def ask(self, account: str) -> Ticket:
        """Queue up. An account that comes anew has had no less than those that are here: idleness is not saved up.

        Where nobody is here it has had no less than anybody: who had the device alone took it from no one.
        """
        if not self._open[account]:
            here = [self._had_s[other] for other in self._open if self._open[other]]
            least = min(here) if here else max(self._had_s.values(), default=0.0)
            self._had_s[account] = max(self._had_s.get(account, 0.0), least)
        self._open[account] += 1
        ticket = Ticket(account, next(self._numbers), self)
        self._waiting.append(ticket)
        self._grant()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Out of the queue, if it still stands there."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)

    def end(self, ticket: Ticket, used_s: float) -> None:
        """The end of one that was asked for; its place is free for the next."""
        self._open[ticket.account] -= 1
        self._had_s[ticket.account] += used_s
        self._free += ticket.granted
        self._grant()

    def _grant(self) -> None:
        while self._free and self._waiting:
            ticket = min(self._waiting, key=lambda waiting: (self._had_s[waiting.account], waiting.number))
            self._waiting.remove(ticket)
            self._free -= 1
            ticket.grant()

"""Memory of a device among the servers that share it: who lacks some asks, and the others give theirs back at once."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kernelgate.tools.worker.lease import Lease

EVERY_S: Final = 0.25
"""Between two looks whether anybody asks."""
GIVEN_S: Final = 3.0
"""For the others to see it and to end what they keep; whose call is under way waits for the lease and sees it there."""
_POLL_S: Final = 0.02


class Room:
    """What one supervisor asks of the others on its device, and does for them."""

    def __init__(self, lease: Lease, give_back: Callable[[], Awaitable[None]]) -> None:
        """`give_back` ends all that this supervisor keeps on the device between calls."""
        self._lease, self._give_back = lease, give_back
        self._known = 0

    async def ask(self) -> None:
        """Have the others give back what they keep, and wait until they have; only while the lease is held."""
        others = self._lease.others()
        if not others:
            return
        self._known = self._lease.ask_for_room()
        end_s = time.monotonic() + GIVEN_S
        while any(process.alive for process in others) and time.monotonic() < end_s:  # noqa: ASYNC110  no event of ours
            await asyncio.sleep(_POLL_S)

    async def give_if_asked(self) -> None:
        """Give back what is kept if another has asked since the last time; only while no call is conducted."""
        if self._asked():
            self._known = self._lease.read().room_asked
            await self._give_back()

    async def watch(self, turn: asyncio.Lock) -> None:
        """For as long as the supervisor lives: give back between calls, which have the `turn`."""
        while True:
            await asyncio.sleep(EVERY_S)
            if not turn.locked() and self._asked():
                async with turn:
                    await self.give_if_asked()

    def _asked(self) -> bool:
        return self._lease.read().room_asked != self._known

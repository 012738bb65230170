"""A candidate's processes started ahead on a GPU: their CUDA contexts, 0.2 s each, are there when the calls come.

All for one source, which was sent already and of which they have run nothing; whoever starts them holds the lease, so
that no measurement of others is disturbed.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Final

from kernelgate.tools.worker.calls import Call
from kernelgate.tools.worker.lease import Lease
from kernelgate.tools.worker.nursery import MustReplace, Nursery, Spare
from kernelgate.tools.worker.plans import CannotFork
from kernelgate.tools.worker.sealed import Envelope, Sealed

CHECK: Final = "check_correctness"
AHEAD: Final = 2
"""Beside a compile: for the check and for the quick timing, which follow it most often."""
KEPT_S: Final = 20.0
"""Nobody has asked for one: its context, about half a gigabyte, is given back."""


class Spares:
    """Starts, hands out and ends the spares of one supervisor."""

    def __init__(
        self,
        nursery: Nursery,
        lease: Lease,
        turn: asyncio.Lock,
        later: Callable[[Coroutine[None, None, None]], None],
        *,
        wanted: bool,
    ) -> None:
        """None yet, and never any unless `wanted`.

        `lease` and `turn` are the supervisor's; `later` has something done that no call waits for.
        """
        self._nursery, self._lease, self._turn, self._later = nursery, lease, turn, later
        self._wanted = wanted
        self._spares: list[Spare] = []

    @contextlib.asynccontextmanager
    async def started_beside(self, call: Call) -> AsyncGenerator[None]:
        """While a check is conducted, which times nothing, start the process of the next call, if there is none yet.

        It has started when the lease is given back.
        """
        wanted = self._wanted and call.request.procedure == CHECK
        starting = asyncio.create_task(self._start(call.request, call.sealed, 1)) if wanted else None
        try:
            yield
        finally:
            if starting is not None:
                await starting

    def start_if_idle(self, call: Call) -> None:
        """Start the processes of calls on a source that is only now compiled, if nobody else wants the device."""
        if self._wanted and not self._turn.locked():
            self._later(self._start_ahead(call.request, call.sealed.copy()))

    async def _start_ahead(self, request: Envelope, sealed: Sealed) -> None:
        """`sealed` is a copy: it is needed for longer than the compile takes."""
        with sealed:
            async with self._turn:
                if self._lease.try_take():
                    try:
                        await self._start(request, sealed, AHEAD)
                    finally:
                        self._lease.release()

    def take(self, call: Call) -> socket.socket | None:
        """Give a spare to a call that it fits, as its candidate; returns the referee's end of the line."""
        spare = next((spare for spare in self._spares if spare.fits(call.request) and spare.child.running), None)
        if spare is None:
            return None
        self._spares.remove(spare)
        call.candidate, call.shared_memory = spare.child, spare.shared_memory
        call.scratches.append(spare.scratch)
        return spare.sock

    async def end(self) -> None:
        """End all that there are."""
        await self._dismiss(self._spares)

    async def _start(self, request: Envelope, sealed: Sealed, count: int) -> None:
        """Have so many for a source, and none for others. Where no process can be made, the call itself will say so."""
        await self._dismiss([spare for spare in self._spares if not (spare.fits(request) and spare.child.running)])
        await asyncio.gather(*(self._start_one(request, sealed) for _ in range(count - len(self._spares))))

    async def _start_one(self, request: Envelope, sealed: Sealed) -> None:
        with contextlib.suppress(CannotFork, MustReplace, OSError):
            spare = await self._nursery.spare(request, sealed)
            self._spares.append(spare)
            self._lease.list_resident(spare.child.keeper_pid)
            self._later(self._end_when_old(spare))

    async def _dismiss(self, spares: list[Spare]) -> None:
        leaving, self._spares = list(spares), [spare for spare in self._spares if spare not in spares]
        for spare in leaving:
            spare.sock.close()
            await self._nursery.dismiss(spare.child, spare.scratch)

    async def _end_when_old(self, spare: Spare) -> None:
        await asyncio.sleep(KEPT_S)
        async with self._turn:
            if spare in self._spares:
                await self._dismiss([spare])

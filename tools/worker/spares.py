"""A candidate's process started ahead on a GPU: its CUDA context, 0.2 s, is there when the call comes.

At most one. It holds a source that was sent already and has run none of it; whoever starts it holds the lease, so that
no measurement of others is disturbed.
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
from kernelgate.tools.worker.sealed import Envelope

CHECK: Final = "check_correctness"
KEPT_S: Final = 20.0
"""Nobody has asked for it: its context, about half a gigabyte, is given back."""


class Spares:
    """Starts, hands out and ends the spare of one supervisor."""

    def __init__(
        self,
        nursery: Nursery,
        lease: Lease,
        turn: asyncio.Lock,
        later: Callable[[Coroutine[None, None, None]], None],
        *,
        wanted: bool,
    ) -> None:
        """None yet, and never one unless `wanted`.

        `lease` and `turn` are the supervisor's; `later` has something done that no call waits for.
        """
        self._nursery, self._lease, self._turn, self._later = nursery, lease, turn, later
        self._wanted = wanted
        self._spare: Spare | None = None

    @contextlib.asynccontextmanager
    async def started_beside(self, request: Envelope) -> AsyncGenerator[None]:
        """While a check is conducted, which times nothing, start the process of the next call on the same source.

        It has started when the lease is given back.
        """
        wanted = self._wanted and request.procedure == CHECK
        starting = asyncio.create_task(self._start(request)) if wanted else None
        try:
            yield
        finally:
            if starting is not None:
                await starting

    async def start_if_idle(self, request: Envelope) -> None:
        """Start the process of a call on a source that is only now compiled, if nobody else wants the device."""
        if not self._wanted or self._turn.locked():
            return
        async with self._turn:
            if self._lease.try_take():
                try:
                    await self._start(request)
                finally:
                    self._lease.release()

    def take(self, call: Call) -> socket.socket | None:
        """Give the spare to a call that it fits, as its candidate; returns the referee's end of the line."""
        spare = self._spare
        if spare is None or not spare.fits(call.request) or not spare.child.running:
            return None
        self._spare = None
        call.candidate, call.shared_memory = spare.child, spare.shared_memory
        call.scratches.append(spare.scratch)
        return spare.sock

    async def end(self) -> None:
        """End the spare, if there is one."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.sock.close()
            await self._nursery.dismiss(spare.child, spare.scratch)

    async def _start(self, request: Envelope) -> None:
        """In place of the spare that there is. Where no process can be made, the call itself will say so."""
        if self._spare is not None and self._spare.fits(request):
            return
        await self.end()
        with contextlib.suppress(CannotFork, MustReplace, OSError):
            self._spare = await self._nursery.spare(request)
            self._lease.list_resident(self._spare.child.keeper_pid)
            self._later(self._end_when_old(self._spare))

    async def _end_when_old(self, spare: Spare) -> None:
        await asyncio.sleep(KEPT_S)
        async with self._turn:
            if spare is self._spare:
                await self.end()

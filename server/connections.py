"""What a connection may ask of the server before anybody is known: a request arrives whole and soon, or not at all."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_BUSY: Final = 700
"""Connections from which on requests are told to come again later."""
MAX_CONNECTIONS: Final = 800
"""More are closed unheard: a process has 1,024 descriptors unless told otherwise, and the workers' start needs some."""
KEEP_UP_TO: Final = 350
"""With more, each is closed after its answer: those that are kept open between requests keep others out, too."""
ARRIVE_WITHIN_S: Final = 30.0
"""A whole request, body and all, from the opening of its connection or the answer before it on."""


class Patience(H11Protocol):
    """uvicorn's protocol, but for who connects and says nothing, or says it byte by byte: uvicorn waits for them."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        """See uvicorn."""
        super().__init__(*args, **rest)
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        if self.cycle and len(self.connections) > KEEP_UP_TO:
            self.cycle.keep_alive = False
        self._watch()

    def on_response_complete(self) -> None:
        """Called by uvicorn; a part of the next request may be here already."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        asked = self.cycle  # of the last request whose header is here
        if asked and not asked.more_body and not asked.response_complete:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(ARRIVE_WITHIN_S, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

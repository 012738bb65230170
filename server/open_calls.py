"""Calls that wait for their answer, so that each gets one when the server is told to leave."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio

LEAVING: Final = (
    "The server was told to stop and answers no more calls: what was under way is cancelled, and what it used is "
    "charged. When it is back, go on with start_run(resume=…) and ask again."
)


class OpenCalls:
    """Those of this server process."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._leaving = False

    @contextmanager
    def one(self) -> Generator[anyio.CancelScope]:
        """While a call is answered; the scope says afterwards whether it was ended from here."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._leaving:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def end(self) -> None:
        """End all that are open, and each that comes still. Their work ends with the server, not here."""
        self._leaving = True
        for scope in self._scopes:
            scope.cancel()

"""What a client may read of an exception: the sentences that are meant for it, and of all others a reference."""

import logging
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import mcp.types as types
from mcp import MCPError

from kernelgate.budget.errors import LedgerError
from kernelgate.server.gate import EnvironmentFault
from kernelgate.server.services import sentence
from kernelgate.tools.kit.book import ToolMistake

log = logging.getLogger("kernelgate")


@dataclass(frozen=True)
class Told:
    """One sentence for the client, and whether the fault is the server's and not the request's."""

    sentence: str
    ours: bool


def told(error: Exception, what: str) -> Told:
    """The sentence for the client; the log has the rest."""
    if isinstance(error, (ToolMistake, EnvironmentFault)):
        return Told(str(error), ours=False)
    if isinstance(error, LedgerError):
        log.warning("%s: %s", what, error)
        return Told(sentence(error), ours=True)
    reference = uuid.uuid4().hex[:8]
    log.error("%s failed, reference %s", what, reference, exc_info=error)
    text = (
        f"Something failed in the server (reference {reference}); the call was not charged. Try again; if it "
        "stays, the server's log has the details under that reference."
    )
    return Told(text, ours=True)


@contextmanager
def as_protocol_errors(what: str, data: Mapping[str, str] | None = None) -> Generator[None]:
    """Whatever goes wrong inside becomes an error of the protocol with that sentence: for all that is no tool call.

    The SDK would hand the text of any exception to a client of the handshake era.

    Args:
        what: was tried, for the log.
        data: goes with the error.
    """
    try:
        yield
    except MCPError:
        raise
    except Exception as error:  # noqa: BLE001 -- it is logged by `told`, and no text of it may go on from here
        found = told(error, what)
        code = types.INTERNAL_ERROR if found.ours else types.INVALID_PARAMS
        raise MCPError(code, found.sentence, data) from None

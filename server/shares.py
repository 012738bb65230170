"""What one account may have open over HTTP at once: a share of the requests and the sessions, the rest is for others.

Sessions are of the older versions of the protocol. The SDK keeps them and ends who is silent for long; here they are
counted as their requests pass.
"""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.types import INVALID_REQUEST
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelgate.budget.model import LOCAL

MAX_SESSIONS: Final = 2_000
"""Of all accounts."""
MOST_SESSIONS: Final = 200
"""Of one account: nine leave room for others, and a fleet has a client for each of its agents."""
MOST_HELD: Final = 150
"""Requests of one account that are not answered yet. Fifty agents of the older versions hold a stream and a call each;
four accounts at this bound leave room for others below `MAX_BUSY`."""
SESSION_ENDS_S: Final = 1_800.0
"""A session that nobody asks anything for so long ends."""
IDLE_S: Final = 60.0
"""One that nobody asked anything for so long ends when its account wants another one and has as many as it may. A
client that lives holds a stream open, or begins anew."""
COME_AGAIN_S: Final = 5
"""Calls of the account end, and clients leave: whether there is room is worth asking again then."""


@dataclass(eq=False)
class Session:
    """One that an account has open."""

    account: str
    opened_by: Scope
    """The request: its caller is the only one whom the SDK lets end it."""
    held: int = 0
    """Requests of it that are not answered yet, its stream among them."""
    asked_s: float = field(default_factory=time.monotonic)
    """When the last of them came or was answered."""


@dataclass(frozen=True)
class Refusal:
    """Why an account gets no more now, and when to ask again."""

    why: str
    again_s: int


def too_many_held(held: int) -> Refusal | None:
    """Whether one more request of an account with so many is refused."""
    if held < MOST_HELD:
        return None
    why = f"{held} requests of this account are not answered yet, and more are not taken beside those of others"
    return Refusal(f"{why}: wait for one, or close a stream, then ask again.", COME_AGAIN_S)


def room_for_session(own: Mapping[str, Session], opening: int, now_s: float) -> Refusal | str | None:
    """Whether an account may open a session: None if there is room, else the id of the one to end for it, or why not.

    Args:
        own: id → session of the account.
        opening: sessions of it that are about to open.
        now_s: monotonic time.
    """
    if len(own) + opening < MOST_SESSIONS:
        return None
    silent = {name: session.asked_s for name, session in own.items() if not session.held}
    longest = min(silent, key=silent.__getitem__, default="")
    wait_s = IDLE_S - (now_s - silent[longest]) if longest else float(COME_AGAIN_S)
    if longest and wait_s <= 0:
        return longest
    why = f"{len(own) + opening} sessions of this account are open, and more are not opened beside those of others"
    return Refusal(f"{why}: end one (DELETE), or leave one silent for {IDLE_S:.0f} s.", max(1, math.ceil(wait_s)))


class Shares:
    """Counts what each account has open, and answers 429 to what is more than its share."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        """Only requests for this path are counted: the others are answered at once."""
        self._app, self._path = app, path
        self._held: Counter[str] = Counter()
        self._opening: Counter[str] = Counter()
        self._sessions: dict[str, Session] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http" or scope["path"] != self._path:
            return await self._app(scope, receive, send)
        account = _account(_caller(scope))
        if (refusal := too_many_held(self._held[account])) is not None:
            return await _turn_away(refusal, scope, receive, send)
        with _one_more(self._held, account):
            headers = Headers(scope=scope)
            session_id = headers.get(MCP_SESSION_ID_HEADER)
            if session_id is not None:
                return await self._in_session(session_id, scope, receive, send)
            version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
            if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
                return await self._app(scope, receive, send)
            return await self._opening_one(account, scope, receive, send)

    async def _in_session(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        session = self._sessions.get(session_id)
        if session is None or _caller(session.opened_by) != _caller(scope):
            return await self._app(scope, receive, send)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and (
                message["status"] == 404 or (scope["method"] == "DELETE" and message["status"] < 400)
            ):
                self._sessions.pop(session_id, None)
            await send(message)

        session.held += 1
        session.asked_s = time.monotonic()
        try:
            await self._app(scope, receive, noting)
        finally:
            session.held -= 1
            session.asked_s = time.monotonic()

    async def _opening_one(self, account: str, scope: Scope, receive: Receive, send: Send) -> None:
        now_s = time.monotonic()
        for name, session in list(self._sessions.items()):
            if not session.held and now_s - session.asked_s >= SESSION_ENDS_S:
                del self._sessions[name]  # the SDK has ended it
        own = {name: session for name, session in self._sessions.items() if session.account == account}
        decided = room_for_session(own, self._opening[account], now_s)
        if isinstance(decided, Refusal):
            return await _turn_away(decided, scope, receive, send)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                name = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER)
                if name:
                    self._sessions[name] = Session(account, scope)
                    opening.close()  # it is open: counted once
            await send(message)

        with contextlib.ExitStack() as opening:
            opening.enter_context(_one_more(self._opening, account))
            if decided is not None:
                await self._end(decided, self._sessions.pop(decided))
            await self._app(scope, receive, noting)

    async def _end(self, session_id: str, session: Session) -> None:
        """As its own client would: there is no other door into the SDK's sessions."""
        opened = session.opened_by
        mine = (b"mcp-session-id", b"content-length", b"content-type")
        headers = [
            *((name, value) for name, value in opened["headers"] if name not in mine),
            (mine[0], session_id.encode()),
        ]

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Message) -> None:
            """Nobody waits for this answer."""

        await self._app({**opened, "method": "DELETE", "headers": headers}, receive, send)


def _caller(scope: Scope) -> AuthorizationContext | None:
    """As the SDK tells the owners of sessions apart."""
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None


def _account(caller: AuthorizationContext | None) -> str:
    return LOCAL if caller is None else caller["client_id"]


@contextlib.contextmanager
def _one_more(counter: Counter[str], account: str) -> Generator[None]:
    counter[account] += 1
    try:
        yield
    finally:
        counter[account] -= 1
        if not counter[account]:
            del counter[account]


async def _turn_away(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """429, and the connection is given back: those that are kept open count towards what all may have."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": refusal.why}}
    headers = {"Retry-After": str(refusal.again_s), "Connection": "close"}
    await JSONResponse(body, status_code=429, headers=headers)(scope, receive, send)

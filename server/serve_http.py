"""The HTTP server: many agents, each token an account with a purse of its own, on the devices of this host."""

import contextlib
import ipaddress
import logging
import re
import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import Final

import anyio
import uvicorn
from anyio.abc import TaskGroup
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelgate.server.app import OpenServices, build
from kernelgate.server.connections import MAX_BUSY, Patience
from kernelgate.server.installed import package_version
from kernelgate.server.serve import leave_on_signal, make_ready
from kernelgate.server.settings import Settings
from kernelgate.server.shares import MAX_SESSIONS, SESSION_ENDS_S, Shares
from kernelgate.server.tokens import BrokenTokens, TokenError, Tokens, address
from kernelgate.server.trouble import Trouble, guarded

MCP_PATH: Final = "/mcp"
HEALTH_PATH: Final = "/healthz"
MAX_BODY_BYTES: Final = 4 << 20
"""Of a request: sources are far smaller."""
TOKEN_WATCH_S: Final = 2.0
"""What is open when its token is removed ends within so long."""
BACKLOG: Final = 100
"""asyncio takes so many connections at once before it asks who they are: with more it runs out of descriptors."""
CLOSE_S: Final = 1
"""Open answers may take so long when the server is told to leave."""
ANYWHERE: Final = ("0.0.0.0", "::")

log = logging.getLogger("kernelgate")


@dataclass(frozen=True)
class Place:
    """Where the server listens, under which address clients know it, and whether they need a token."""

    host: str
    port: int
    url: str = ""
    """Empty: made of host and port."""
    needs_token: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether only this host reaches it."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    def at(self, port: int) -> "Place":
        """With the port that the system gave, and its address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Place(self.host, port, self.url or f"http://{host}:{port}{MCP_PATH}", self.needs_token)


def place_of(text: str, url: str, *, needs_token: bool) -> Place:
    """`PORT`, `HOST:PORT` or `[HOST]:PORT` → the place; raises `Trouble` with what would do."""
    found = re.fullmatch(r"(?:(?:\[([0-9a-fA-F:]+)\]|([^:\[\]]+)):)?([0-9]{1,5})", text.strip())
    if found is None or int(found[3]) > 65535:
        raise Trouble(f"--http {text} is no place to listen at: give a port (8642), or 127.0.0.1:8642, or [::1]:8642")
    host = found[1] or found[2] or "127.0.0.1"
    host = str(ipaddress.ip_address(host)) if _is_address(host) else host
    if host != "localhost" and not _is_address(host):
        raise Trouble(f"--http {text}: give the address of this host as a number, or localhost, not a name")
    try:
        known_as = address(url) if url else ""
    except TokenError as error:
        raise Trouble(f"--url: {error}") from None
    place = Place(host, int(found[3]), known_as)
    if host in ANYWHERE and not url:
        raise Trouble(f"--http {text} listens everywhere: say with --url under which address clients reach it")
    return Place(host, place.port, known_as, needs_token or not place.is_loopback)


def _is_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


class TokenBackend(AuthenticationBackend):
    """Who a request is from. Without a token it is the local account, where none is needed."""

    def __init__(self, tokens: Tokens, place: Place) -> None:
        self._tokens, self._place = tokens, place

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, AuthenticatedUser] | None:
        """Raises `AuthenticationError` with a sentence."""
        header = conn.headers.get("authorization")
        # Not `conn.url`: it is made with the Host header, which may hold a path of its own.
        if conn.scope["path"] == HEALTH_PATH or (header is None and not self._place.needs_token):
            return None
        kind, _, secret = (header or "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise AuthenticationError("this server needs a token: send it as `Authorization: Bearer TOKEN`")
        try:
            account = self._tokens.account_of(secret.strip(), self._place.url)
        except BrokenTokens as error:
            log.error("%s", error)  # noqa: TRY400 -- a sentence for who runs the server, not a fault of its own
            raise AuthenticationError("this server cannot read its tokens now: tell who runs it") from None
        except TokenError as error:
            raise AuthenticationError(str(error)) from None
        token = AccessToken(token="", client_id=account, scopes=[], resource=self._place.url)
        return AuthCredentials([]), AuthenticatedUser(token)


class EndedWithToken:
    """A request that stays open ends when its token is removed or has expired: a stream of changes lasts for days."""

    def __init__(self, app: ASGIApp, backend: TokenBackend) -> None:
        self._app, self._backend = app, backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if not isinstance(scope.get("user"), AuthenticatedUser):
            return await self._app(scope, receive, send)
        begun = ended = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        async def watch(group: TaskGroup) -> None:
            nonlocal ended
            while not ended:
                await anyio.sleep(TOKEN_WATCH_S)
                try:
                    await self._backend.authenticate(HTTPConnection(scope))
                except AuthenticationError:
                    ended = True
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch, group)
            await self._app(scope, receive, noting)
            group.cancel_scope.cancel()
        if ended and begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        return None


def refused(_: HTTPConnection, error: Exception) -> Response:
    """401 with the sentence, as RFC 6750 has it."""
    said = {"error": "invalid_token", "error_description": f"{error}."}
    return JSONResponse(said, status_code=401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})


def web_app(open_services: OpenServices, place: Place, tokens: Tokens) -> Starlette:
    """The whole of it as an ASGI application; `place` has its final port."""
    begun_s = time.monotonic()

    async def health(_: Request) -> Response:
        up_s = round(time.monotonic() - begun_s, 1)
        return JSONResponse({"status": "ok", "version": package_version("kernelgate"), "up_s": up_s})

    names = {place.url.split("://")[1].partition("/")[0]}
    if place.is_loopback:
        names |= {f"{name}:{place.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    app = build(open_services).streamable_http_app(
        streamable_http_path=MCP_PATH,
        host=place.host,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=SESSION_ENDS_S,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=sorted(names),
            allowed_origins=sorted(f"{scheme}://{name}" for name in names for scheme in ("http", "https")),
        ),
        custom_starlette_routes=[Route(HEALTH_PATH, health)],
    )
    backend = TokenBackend(tokens, place)
    app.add_middleware(AuthContextMiddleware)
    app.add_middleware(EndedWithToken, backend=backend)
    app.add_middleware(Shares, path=MCP_PATH)
    app.add_middleware(AuthenticationMiddleware, backend=backend, on_error=refused)  # the outer one
    return app


def run_http(settings: Settings, text: str, url: str, *, needs_token: bool) -> int:
    """Serve until a signal comes; the exit status."""

    def serving() -> int:
        place = place_of(text, url, needs_token=needs_token)
        make_ready(settings)
        tokens = Tokens(settings.data_dir)
        known = tokens.all()
        with listening(place) as sock:
            there = place.at(sock.getsockname()[1])
            if there.needs_token and not any(token.url == address(there.url) for token in known):
                raise Trouble(
                    f"no token opens {there.url} yet: make one with `kernelgate tokens add ACCOUNT --url {there.url}`"
                )
            anyio.run(_serve, settings, there, tokens, sock)
        return 0

    return guarded(serving)


@contextlib.contextmanager
def listening(place: Place) -> Generator[socket.socket]:
    """The socket; raises `Trouble` where the place is taken or not of this host."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    # Named as TCP: on connections of a socket without a protocol asyncio leaves Nagle's delay on, 40 ms an answer.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((place.host, place.port))
            sock.listen(BACKLOG)  # already: who comes while the services open waits, and is not refused
        except OSError as error:
            raise Trouble(f"{place.host}:{place.port} cannot be listened at ({error.strerror}): give another") from None
        yield sock


class _Uvicorn(uvicorn.Server):
    """Signals are the caller's: uvicorn would raise them again, and the process would end with their number."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def _serve(settings: Settings, place: Place, tokens: Tokens, sock: socket.socket) -> None:
    from kernelgate.server.services import Services, open_services

    opened: list[Services] = []

    @contextlib.asynccontextmanager
    async def opening() -> AsyncGenerator[object]:
        async with open_services(settings) as services:
            log.info("serving %s from %s", place.url, settings.data_dir)
            who = "each request needs a token" if place.needs_token else "no token is needed from this host"
            sys.stderr.write(f"kernelgate serves {place.url} ({who})\n")
            sys.stderr.flush()
            opened.append(services)
            yield services

    app = web_app(opening, place, tokens)  # type: ignore[arg-type]  # the same services, with a word when they are open
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, lifespan="on",
        limit_concurrency=MAX_BUSY, timeout_graceful_shutdown=CLOSE_S, http=Patience, ws="none",
        backlog=BACKLOG,
    )  # fmt: skip
    server = _Uvicorn(config)

    def leave() -> None:
        for services in opened:
            services.calls.end()
        server.should_exit = True

    async with anyio.create_task_group() as group:
        group.start_soon(leave_on_signal, leave)
        await server.serve(sockets=[sock])
        group.cancel_scope.cancel()
    if not server.started:
        raise Trouble(f"the server did not start: {settings.log} says why")

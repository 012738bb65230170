"""Telling clients what moved in the book: the list of resources, and single resources that they asked about.

The book is looked at once a second while anybody wants to know. So what another server process or the command line
wrote is told like what this one did, a burst of rows is one message, and no write waits for a client. In the protocol
of 2026 a client opens a stream that says what it wants to hear; before that it subscribes to addresses, and is told of
the list without asking.
"""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import mcp.types as types
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)

from kernelgate.budget.ledger import Ledger
from kernelgate.server.caller import Context
from kernelgate.server.resources import known, parsed
from kernelgate.server.services import Services
from kernelgate.server.shelf import Shelf
from kernelgate.server.told import as_protocol_errors
from kernelgate.tools.kit.book import ToolMistake

log = logging.getLogger("kernelgate")

LOOK_EVERY_S: Final = 1.0
"""A look at a book in which nothing moved costs some microseconds; people do not see less than a second."""
TELL_WITHIN_S: Final = 5.0
"""A client that does not read for so long misses the message; it may read the resource whenever it likes."""
MOST_STREAMS: Final = 16
"""Of one account at a time. Clients open one."""
MOST_FOLLOWED: Final = 100
"""Addresses of one client."""
MOST_WAITING: Final = 256
"""Messages of one stream that were not sent yet. A stream whose client stopped reading is ended there."""
_SINCE: Final = """
SELECT max(e.seq) AS seq, e.run_id, r.account_id, e.candidate_id, max(e.kind IN ('grant', 'close')) AS listed,
  max(e.kind = 'grant') AS opened
FROM events e NOT INDEXED LEFT JOIN runs r USING (run_id) WHERE e.seq > ? GROUP BY e.run_id, e.candidate_id"""
"""By the rows' own numbers: with an index of its grouping SQLite would read a long ledger whole, each second."""


@dataclass
class Moved:
    """What moved for one account."""

    opened: bool = False
    """Whether there are new runs, so that the list of resources is another one."""
    uris: set[str] = field(default_factory=set[str])


@dataclass(eq=False)
class _Follower:
    """A client of the handshake era: its connection, and what it subscribed to."""

    account: str
    session: ServerSession
    uris: set[str] = field(default_factory=set[str])


class _Channel:
    """The streams of one account: what moves in another account's runs is no news there."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus, max_subscriptions=MOST_STREAMS, max_buffered_events=MOST_WAITING)


class Changes:
    """Who wants to be told, and the telling."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}
        self._listening: Counter[str] = Counter()
        self._followers: dict[Connection, _Follower] = {}
        self._seq = 0
        """Everything up to this event was told."""

    @asynccontextmanager
    async def watched(self, services: Services) -> AsyncGenerator[None]:
        """While inside, the book is looked at for whoever wants to be told."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, services)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _watch(self, services: Services) -> None:
        while True:
            await anyio.sleep(LOOK_EVERY_S)
            if not self._anybody:
                continue
            try:
                await self._tell(await services.ledger.do(lambda ledger: self._look(ledger)))
            except Exception:
                # Messages are a courtesy: a book that cannot be read now, or a client's stream, ends no server.
                log.exception("changes were not told")

    @property
    def _anybody(self) -> bool:
        return bool(self._followers) or self._listening.total() > 0

    def _look(self, ledger: Ledger) -> dict[str, Moved]:
        """What moved since the last look, by account."""
        rows = ledger.query(_SINCE, self._seq)
        moved: dict[str, Moved] = {}
        for row in rows:
            self._seq = max(self._seq, row["seq"])
            if row["run_id"] is None:
                continue
            of = moved.setdefault(row["account_id"], Moved())
            of.opened |= bool(row["opened"])
            run = f"kernelgate://runs/{row['run_id']}"
            of.uris |= {run, f"{run}/candidates", f"{run}/ledger"}
            if row["candidate_id"]:
                of.uris.add(f"kernelgate://candidates/{row['candidate_id']}")
            if row["listed"]:
                of.uris.add("kernelgate://runs")
        return moved

    async def _tell(self, moved: dict[str, Moved]) -> None:
        for account, of in moved.items():
            channel = self._channels.get(account)
            if channel is not None:
                if of.opened:
                    await channel.bus.publish(ResourcesListChanged())
                for uri in sorted(of.uris):
                    await channel.bus.publish(ResourceUpdated(uri))
        async with anyio.create_task_group() as group:  # nobody waits for a client that does not read
            for follower in list(self._followers.values()):
                if follower.account in moved:
                    group.start_soon(_tell_follower, follower, moved[follower.account])

    async def _begin(self, services: Services) -> None:
        """Before the first one listens: what was written until now is no news."""
        if self._anybody:
            return
        rows = await services.ledger.do(lambda ledger: ledger.query("SELECT max(seq) AS seq FROM events"))
        if not self._anybody:  # else somebody else was first, and may be owed what came meanwhile
            self._seq = rows[0]["seq"] or 0

    # -- 2026-07-28 ---------------------------------------------------------------------------------------------------

    async def on_listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """A stream of what a client wants to hear, as far as it is served; open until the client leaves."""
        with as_protocol_errors("a subscription"):
            shelf = Shelf.of(ctx)
            wish = params.notifications
            wanted = wish.resource_subscriptions or []
            _require_room(len(wanted))
            served = types.SubscriptionFilter(
                resources_list_changed=wish.resources_list_changed,
                resource_subscriptions=[uri for uri in wanted if await _is_followed(shelf, uri)],
            )
            await self._begin(shelf.services)
            channel = self._channels.setdefault(shelf.account, _Channel())
            with self._counted(shelf.account):
                return await channel.listen(ctx, params.model_copy(update={"notifications": served}))

    @contextmanager
    def _counted(self, account: str) -> Generator[None]:
        self._listening[account] += 1
        try:
            yield
        finally:
            self._listening[account] -= 1

    # -- before: the handshake era ------------------------------------------------------------------------------------

    async def on_initialized(self, ctx: Context, params: types.NotificationParams) -> None:
        """A client that shook hands is told when the list of resources changes."""
        await self._follow(ctx)

    async def on_subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Tell this client when a resource changes."""
        with as_protocol_errors("a subscription"):
            await _require_followed(Shelf.of(ctx), params.uri)
            follower = await self._follow(ctx)
            _require_room(len(follower.uris | {params.uri}))
            follower.uris.add(params.uri)
            return types.EmptyResult()

    async def on_unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Tell it no more; what it never subscribed to is no mistake."""
        with as_protocol_errors("a subscription"):
            follower = await self._follow(ctx)
            follower.uris.discard(params.uri)
            return types.EmptyResult()

    async def _follow(self, ctx: Context) -> _Follower:
        shelf = Shelf.of(ctx)
        connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]  # the one thing that ends with a client; the SDK hands it out nowhere else
        await self._begin(shelf.services)
        if connection not in self._followers:
            self._followers[connection] = _Follower(shelf.account, ctx.session)
            connection.exit_stack.callback(self._followers.pop, connection, None)
        return self._followers[connection]


async def _tell_follower(follower: _Follower, moved: Moved) -> None:
    with anyio.move_on_after(TELL_WITHIN_S):
        if moved.opened:
            await follower.session.send_notification(types.ResourceListChangedNotification())
        for uri in sorted(follower.uris & moved.uris):
            await follower.session.send_resource_updated(uri)


def _require_room(addresses: int) -> None:
    if addresses > MOST_FOLLOWED:
        raise ToolMistake(f"{addresses} resources are too many to follow: subscribe to at most {MOST_FOLLOWED}.")


async def _require_followed(shelf: Shelf, uri: str) -> None:
    """Raise `ToolMistake` for an address that is none, of another account, or of what never changes."""
    view, values = parsed(uri)
    if not view.moves:
        raise ToolMistake(f"Changes of {view.template} are not told: read it again instead.")
    await known(shelf, values)


async def _is_followed(shelf: Shelf, uri: str) -> bool:
    try:
        await _require_followed(shelf, uri)
    except ToolMistake:
        return False
    return True

"""Changes: who asked is told what moved in the book, whoever wrote it, once for a burst, and nobody else."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from connecting import (
    BOTH_ERAS,
    BOTH_WAYS,
    book_of,
    connected,
    new_run,
    of_another_account,
    read,
    subscribe,
    unsubscribe,
    write_result,
)  # fmt: skip
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, ResourceListChangedNotification, ResourceUpdatedNotification

from kernelgate.budget.model import Rung
from kernelgate.server import app
from kernelgate.server.changes import _SINCE, MOST_FOLLOWED, MOST_STREAMS, Changes, Moved, _Follower

SECRET = "secret-7f3a"
WITHIN_S = 30.0
"""A message comes within a second; a busy machine may take longer."""
EVERYTHING = ["kernelgate://candidates/c1", "kernelgate://runs", "kernelgate://runs/r1"]


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers in this process do."""
    monkeypatch.setattr("kernelgate.server.changes.LOOK_EVERY_S", 0.05)


class Ear:
    """What a client hears, in either era, as addresses; `list` is the list of resources."""

    def __init__(self) -> None:
        self._sending, self._heard = anyio.create_memory_object_stream[str](100)

    async def of_messages(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await self._sending.send(message.params.uri)
        if isinstance(message, ResourceListChangedNotification):
            await self._sending.send("list")

    async def of_stream(self, stream: AsyncIterator[Any]) -> None:
        async for event in stream:
            assert isinstance(event, ResourceUpdated | ResourcesListChanged)
            await self._sending.send(event.uri if isinstance(event, ResourceUpdated) else "list")

    async def hears(self, number: int) -> list[str]:
        """The next messages, in order of address."""
        with anyio.fail_after(WITHIN_S):
            return sorted([await self._heard.receive() for _ in range(number)])

    def hears_no_more(self) -> bool:
        return self._heard.statistics().current_buffer_used == 0

    async def __aenter__(self) -> "Ear":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sending.close()
        self._heard.close()


async def listen(client: Client, uri: str) -> None:
    async with client.listen(resource_subscriptions=[uri]):
        pass


@asynccontextmanager
async def listening(way: str, folder: Path, mode: str, *uris: str) -> AsyncIterator[tuple[Client, Ear]]:
    """A client that wants to hear of these resources and of the list."""
    # The SDK's client hands what comes on a stream to its message handler too.
    async with (
        Ear() as ear,
        connected(way, folder, mode, ear.of_messages if mode == "legacy" else None) as client,
    ):
        if mode == "legacy":
            for uri in uris:
                await subscribe(client, uri)
            yield client, ear
            return
        async with (
            client.listen(resources_list_changed=True, resource_subscriptions=uris) as stream,
            anyio.create_task_group() as group,
        ):
            group.start_soon(ear.of_stream, stream)
            yield client, ear
            group.cancel_scope.cancel()


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_who_subscribed_to_a_run_is_told_when_a_result_is_written(tmp_path: Path, way: str, mode: str) -> None:
    book = book_of(tmp_path)
    hold = book.hold(book.ledger.candidate("c1"), Rung.profile)
    async with listening(way, tmp_path, mode, *EVERYTHING) as (client, ear):
        before = await read(client, "kernelgate://candidates/c1")
        write_result(book, hold.hold_seq, Rung.profile)
        assert await ear.hears(2) == ["kernelgate://candidates/c1", "kernelgate://runs/r1"]
        after = await read(client, "kernelgate://candidates/c1")
        assert ("diagnosed" in before, "diagnosed" in after) == (False, True)
        book.ledger.close_run("r1", "enough")
        assert await ear.hears(2) == ["kernelgate://runs", "kernelgate://runs/r1"]
        assert '"closed":"enough"' in await read(client, "kernelgate://runs")


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_a_new_run_of_ones_own_changes_the_list_of_resources_and_that_is_told(
    tmp_path: Path, way: str, mode: str
) -> None:
    book = book_of(tmp_path)
    async with listening(way, tmp_path, mode, *EVERYTHING) as (client, ear):
        of_another_account(book)
        new_run(book)
        assert await ear.hears(2) == ["kernelgate://runs", "list"]
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        assert listed[2:] == ["kernelgate://runs/r3", "kernelgate://runs/r1"]
        assert ear.hears_no_more()


@pytest.mark.anyio
@BOTH_WAYS
@BOTH_ERAS
async def test_a_server_declares_what_it_serves_and_no_changes_of_lists_that_never_change(
    tmp_path: Path, way: str, mode: str
) -> None:
    async with connected(way, tmp_path, mode) as client:
        declared = client.server_capabilities.model_dump(exclude_none=True)
    assert declared == {
        "completions": {},
        "prompts": {"list_changed": False},
        "resources": {"subscribe": True, "list_changed": True},
        "tools": {"list_changed": False},
    }


def test_a_burst_of_rows_is_one_message_and_what_was_told_is_not_told_again(tmp_path: Path) -> None:
    book, changes = book_of(tmp_path), Changes()
    changes._look(book.ledger)
    for number in range(300):
        book.candidate(f"# {number} of many")
    book.measure(book.ledger.candidate("c2"), Rung.compile)
    of_another_account(book)
    moved = changes._look(book.ledger)
    assert moved["local"].uris == {
        "kernelgate://runs/r1", "kernelgate://runs/r1/candidates", "kernelgate://runs/r1/ledger",
        "kernelgate://candidates/c2",
    }  # fmt: skip
    assert (moved["local"].opened, moved["other"].opened) == (False, True)
    assert changes._look(book.ledger) == {}
    assert changes._seq == book.ledger.head().seq, "also past rows that are of no run"


def test_a_look_reads_the_new_rows_alone_however_long_the_book_is(tmp_path: Path) -> None:
    plan = [row["detail"] for row in book_of(tmp_path).ledger.query(f"EXPLAIN QUERY PLAN {_SINCE}", 1)]
    assert "SEARCH e USING INTEGER PRIMARY KEY (rowid>?)" in plan


@pytest.mark.anyio
async def test_who_unsubscribed_or_left_is_not_told_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = Changes()
    monkeypatch.setattr(app, "Changes", lambda: changes)
    book = book_of(tmp_path)
    async with listening("memory", tmp_path, "legacy", *EVERYTHING) as (client, ear):
        await unsubscribe(client, "kernelgate://runs")
        await unsubscribe(client, "kernelgate://nothing")
        book.ledger.close_run("r1", "enough")
        # Messages of one look come in order of address: the list of runs would have been first.
        assert await ear.hears(1) == ["kernelgate://runs/r1"]
        assert changes._anybody
    assert not changes._anybody
    async with listening("memory", tmp_path, "auto", *EVERYTHING):
        assert changes._anybody
    assert not changes._anybody


@pytest.mark.anyio
async def test_a_look_that_fails_ends_nothing_and_what_moved_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    look = Changes._look

    def once(self: Changes, ledger: Any) -> Any:
        if SECRET not in caplog.text:
            raise RuntimeError(SECRET)
        return look(self, ledger)

    monkeypatch.setattr(Changes, "_look", once)
    book = book_of(tmp_path)
    async with listening("memory", tmp_path, "auto", *EVERYTHING) as (_, ear):
        book.ledger.close_run("r1", "enough")
        assert await ear.hears(2) == ["kernelgate://runs", "kernelgate://runs/r1"]
    assert "changes were not told" in caplog.text


@pytest.mark.anyio
async def test_a_client_that_does_not_read_keeps_nobody_else_from_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Deaf:
        async def send_resource_updated(self, uri: str) -> None:
            await anyio.sleep_forever()

    class Hearing:
        async def send_resource_updated(self, uri: str) -> None:
            told.append(uri)

    monkeypatch.setattr("kernelgate.server.changes.TELL_WITHIN_S", 0.01)
    changes = Changes()
    for number, session in enumerate((Deaf(), Hearing(), Deaf())):
        changes._followers[number] = _Follower("local", session, {"kernelgate://runs"})  # type: ignore[index,arg-type]  # stand-ins
    with anyio.fail_after(WITHIN_S):
        await changes._tell({"local": Moved(uris={"kernelgate://runs", "kernelgate://runs/r1"})})
    assert told == ["kernelgate://runs"]


@pytest.mark.anyio
async def test_streams_of_one_account_are_bounded_and_one_that_ended_makes_room(tmp_path: Path) -> None:
    book_of(tmp_path)
    async with connected("memory", tmp_path, "auto") as client, AsyncExitStack() as open_streams:
        for _ in range(MOST_STREAMS - 1):
            await open_streams.enter_async_context(client.listen(resources_list_changed=True))
        async with client.listen(resources_list_changed=True):
            with pytest.raises(MCPError, match="limit reached"):
                await listen(client, "kernelgate://runs")
        with anyio.fail_after(WITHIN_S):
            while await refused(client):
                await anyio.lowlevel.checkpoint()  # the server hears of the end a moment later


async def refused(client: Client) -> bool:
    try:
        await listen(client, "kernelgate://runs")
    except MCPError:
        return True
    return False


WRONG = {
    "kernelgate://runs/r9": "unknown run 'r9'",
    "kernelgate://runs/r2/ledger": "unknown run 'r2'",
    "kernelgate://candidates/c2": "unknown candidate 'c2'",
    "kernelgate://tasks": "Changes of kernelgate://tasks are not told",
    "kernelgate://candidates/c1/texts/candidate.py": "are not told: read it again instead",
    "kernelgate://runs/../runs": "There is no resource",
}


@pytest.mark.anyio
@BOTH_WAYS
async def test_a_wrong_subscription_is_one_clear_error_before_2026_and_left_out_of_a_stream_since(
    tmp_path: Path, way: str
) -> None:
    of_another_account(book_of(tmp_path))
    many = [f"kernelgate://runs/r{number}" for number in range(1, MOST_FOLLOWED + 2)]
    async with connected(way, tmp_path, "legacy") as client:
        for uri, words in WRONG.items():
            with pytest.raises(MCPError) as error:
                await subscribe(client, uri)
            assert error.value.code == INVALID_PARAMS
            assert words in error.value.message
    async with connected(way, tmp_path, "auto") as client:
        wish = ["kernelgate://runs/r1", *WRONG]
        async with client.listen(tools_list_changed=True, resource_subscriptions=wish) as stream:
            assert stream.honored.model_dump(exclude_none=True) == {"resource_subscriptions": ["kernelgate://runs/r1"]}
        with pytest.raises(MCPError, match=f"{MOST_FOLLOWED + 1} resources are too many to follow"):
            async with client.listen(resource_subscriptions=many):
                raise AssertionError("too many were taken")


@pytest.mark.anyio
@BOTH_ERAS
async def test_the_text_of_an_unexpected_exception_never_reaches_a_client_through_a_subscription(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def explode(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("kernelgate.server.changes.known", explode)
    async with connected("memory", tmp_path, mode) as client:
        with pytest.raises(MCPError) as failed:
            await (subscribe if mode == "legacy" else listen)(client, "kernelgate://runs")
    assert failed.value.code == INTERNAL_ERROR
    assert SECRET not in f"{failed.value.message} {failed.value.data}"

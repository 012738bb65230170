"""The hash chain over the events: each row's hash covers the hash before it and all of its own columns."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

from kernelgate.budget.clock import Clock
from kernelgate.budget.errors import BookRefusedRow
from kernelgate.budget.model import EventKind, RefusalKind
from kernelgate.budget.records import Head
from kernelgate.budget.triggers import GENESIS_HASH
from kernelgate.tasks.model import sha256_hex

Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event to be written; the book adds number, times and hashes. Fields are the columns of that name."""

    kind: EventKind
    account_id: str
    run_id: str | None = None
    candidate_id: str | None = None
    job_id: str | None = None
    rung: str | None = None
    environment_id: str | None = None
    hold_seq: int | None = None
    calls: int = 0
    override_calls: int = 0
    gpu_s: float = 0.0
    cpu_s: float = 0.0
    work_s: float = 0.0
    overrun_s: float = 0.0
    purse_json: str | None = None
    decision_json: str | None = None
    refusal_kind: RefusalKind | None = None
    reason: str = ""
    missing: str = ""
    rows_sha256: str | None = None


_GIVEN: Final = tuple(field.name for field in fields(Event))
EVENT_COLUMNS: Final = ("seq", *_GIVEN, "created_utc", "monotonic_s", "prev_hash", "hash")
_SECONDS: Final = ("gpu_s", "cpu_s", "work_s", "overrun_s", "monotonic_s")
_INSERT: Final = f"INSERT INTO events ({', '.join(EVENT_COLUMNS)}) VALUES ({', '.join('?' * len(EVENT_COLUMNS))})"


HASHED_COLUMNS: Final = tuple(sorted(set(EVENT_COLUMNS) - {"prev_hash", "hash"}))
"""What the hash of an event covers beside the hash before it, in the order of canonical JSON."""


def event_hash(prev_hash: str, cells: Sequence[Any]) -> str:
    """SHA-256 over the previous hash and the canonical JSON of all columns but the two hashes.

    Args:
        prev_hash: of the event before.
        cells: as SQLite gives them back, in the order of `HASHED_COLUMNS`.
    """
    return sha256_hex(prev_hash + event_text(cells))


def event_text(cells: Sequence[Any]) -> str:
    """The canonical JSON of an event, written out: an audit makes a million of them, each spend two."""
    (account, calls, candidate, cpu_s, created, decision, environment, gpu_s, hold, job, kind, missing, monotonic_s,
     overrides, overrun_s, purse, reason, refusal, rows, run, rung, seq, work_s) = cells  # fmt: skip
    quoted = encode_basestring
    return (
        f'{{"account_id":{quoted(account)},"calls":{calls},'
        f'"candidate_id":{"null" if candidate is None else quoted(candidate)},"cpu_s":{cpu_s!r},'
        f'"created_utc":{quoted(created)},"decision_json":{"null" if decision is None else quoted(decision)},'
        f'"environment_id":{"null" if environment is None else quoted(environment)},"gpu_s":{gpu_s!r},'
        f'"hold_seq":{"null" if hold is None else hold},"job_id":{"null" if job is None else quoted(job)},'
        f'"kind":{quoted(kind)},"missing":{quoted(missing)},"monotonic_s":{monotonic_s!r},'
        f'"override_calls":{overrides},"overrun_s":{overrun_s!r},'
        f'"purse_json":{"null" if purse is None else quoted(purse)},"reason":{quoted(reason)},'
        f'"refusal_kind":{"null" if refusal is None else quoted(refusal)},'
        f'"rows_sha256":{"null" if rows is None else quoted(rows)},"run_id":{"null" if run is None else quoted(run)},'
        f'"rung":{"null" if rung is None else quoted(rung)},"seq":{seq},"work_s":{work_s!r}}}'
    )


def head_of(connection: sqlite3.Connection) -> Head:
    """Number and hash of the last event; (0, 64 zeros) in an empty book."""
    row = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return Head(seq=row[0], hash=row[1]) if row else Head(seq=0, hash=GENESIS_HASH)


def require_row(inserted: sqlite3.Cursor, table: str) -> None:
    """A trigger of somebody else can make SQLite leave a row out without a word; what was answered must stand.

    Raises:
        BookRefusedRow: nothing was inserted.
    """
    if inserted.rowcount != 1:
        raise BookRefusedRow(
            f"The book left out a row of {table} that was to be written: a trigger that is none of a ledger's does "
            "that; nothing was charged, run `kernelgate audit`, which names it."
        )


def append(connection: sqlite3.Connection, clock: Clock, event: Event, before: Head | None = None) -> Head:
    """Write the next event. The caller holds an immediate transaction, so that nobody writes in between.

    Args:
        connection: of the book.
        clock: stamps the event.
        event: what happened.
        before: the head, where the caller has read it in this transaction.

    Raises:
        BookRefusedRow: the row did not appear.
    """
    before = before or head_of(connection)
    columns: dict[str, Cell] = {"seq": before.seq + 1}
    for name in _GIVEN:
        columns[name] = getattr(event, name)
    columns["created_utc"] = clock.utc()
    columns["monotonic_s"] = clock.monotonic_s()
    for name in _SECONDS:  # a REAL column gives back 0.0 for 0, and their JSON differs
        columns[name] = float(columns[name] or 0.0)
    digest = event_hash(before.hash, tuple([columns[name] for name in HASHED_COLUMNS]))
    require_row(connection.execute(_INSERT, (*columns.values(), before.hash, digest)), "events")
    return Head(seq=before.seq + 1, hash=digest)

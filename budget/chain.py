"""The hash chain over the events: each row's hash covers the hash before it and all of its own columns."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from kernelgate.budget.clock import Clock
from kernelgate.budget.model import EventKind, RefusalKind
from kernelgate.budget.records import Head
from kernelgate.budget.triggers import GENESIS_HASH
from kernelgate.tasks.model import canonical_json, sha256_hex

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


def event_hash(prev_hash: str, columns: Mapping[str, Cell]) -> str:
    """SHA-256 over the previous hash and the canonical JSON of all columns but the two hashes."""
    return sha256_hex(prev_hash + canonical_json(dict(columns)))


def head_of(connection: sqlite3.Connection) -> Head:
    """Number and hash of the last event; (0, 64 zeros) in an empty book."""
    row = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return Head(seq=row[0], hash=row[1]) if row else Head(seq=0, hash=GENESIS_HASH)


def append(connection: sqlite3.Connection, clock: Clock, event: Event, before: Head | None = None) -> Head:
    """Write the next event. The caller holds an immediate transaction, so that nobody writes in between.

    Args:
        connection: of the book.
        clock: stamps the event.
        event: what happened.
        before: the head, where the caller has read it in this transaction.
    """
    before = before or head_of(connection)
    columns: dict[str, Cell] = {"seq": before.seq + 1}
    for name in _GIVEN:
        columns[name] = getattr(event, name)
    columns["created_utc"] = clock.utc()
    columns["monotonic_s"] = clock.monotonic_s()
    for name in _SECONDS:  # a REAL column gives back 0.0 for 0, and their JSON differs
        columns[name] = float(columns[name] or 0.0)
    digest = event_hash(before.hash, columns)
    connection.execute(_INSERT, (*columns.values(), before.hash, digest))
    return Head(seq=before.seq + 1, hash=digest)

"""Is what stands in the book what was written? The hash of each event, and the digest of the rows that it stands for.

One walk of its own, beside that over the invariants: in a long book another process makes it, on another core.
"""

import sqlite3
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from kernelgate.budget.audit_recorded import RecordedAudit, Stands
from kernelgate.budget.audit_rows import ResultStream, reason_of
from kernelgate.budget.chain import HASHED_COLUMNS, event_hash
from kernelgate.budget.connection import open_for_reading
from kernelgate.budget.recorded import named_by
from kernelgate.budget.records import Head
from kernelgate.budget.rows import PAID_TABLES, PaidRows
from kernelgate.budget.triggers import GENESIS_HASH

_SEQ_AT: Final = HASHED_COLUMNS.index("seq")
_NAMING: Final = itemgetter(
    *map(HASHED_COLUMNS.index, ("seq", "run_id", "rows_sha256", "kind", "rung", "reason")), -2, -1
)
"""What the walk itself looks at of a row of `_EVENTS`: the two hashes stand last."""
_RESULTS_ALONE: Final = ("results",)
NOT_UTF8: Final = "\0 not UTF-8: "
_NEAR: Final = 50
"""So far from its place an event is looked for."""
_EVENTS: Final = f"SELECT {', '.join(HASHED_COLUMNS)}, prev_hash, hash FROM events WHERE seq <= ? ORDER BY seq"


class Walked(NamedTuple):
    """What a walk found."""

    wrong: list["Wrong"]
    not_covered: int
    """Rows of a ledger from before the chain covered such rows."""


def readable(cell: bytes) -> str:
    """A text of the book, with what is not UTF-8 written out; its digest is then another than the honest text had."""
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return f"{NOT_UTF8}{cell.decode(errors='backslashreplace')}"


class Wrong(NamedTuple):
    """Something that is not as it was written. Tuples, because they cross from one process to another."""

    topic: Literal["chain", "head", "rows"]
    what: str
    seq: int | None = None
    run_id: str | None = None


def wrong_in(path: Path, last_seq: int, run: str | None, head: Head | None, *, any_text: bool = False) -> Walked:
    """Walk over the events up to `last_seq`; what was added since is left to the next audit.

    Args:
        path: of the book.
        last_seq: the last event that the audit saw.
        run: look at the rows of this run's results only; the chain is always checked whole.
        head: one that was kept outside.
        any_text: read texts that are not UTF-8 too.
    """
    connection = open_for_reading(path)
    if any_text:
        connection.text_factory = readable
    try:
        connection.execute("BEGIN")
        return _walk(connection, last_seq, run, head)
    finally:
        connection.close()


def _walk(connection: sqlite3.Connection, last_seq: int, run: str | None, head: Head | None) -> Walked:
    wrong: list[Wrong] = []
    paid, recorded = PaidRows(connection), RecordedAudit(connection)
    results = ResultStream(connection, paid.columns, run)
    having = [(table, ids) for table in PAID_TABLES if table != "results" and (ids := _with_rows(connection, table))]
    result_id_at = paid.columns.index("result_id")
    prev_hash, seq = GENESIS_HASH, 0
    if head is not None and head.seq == 0 and head.hash != GENESIS_HASH:
        wrong.append(Wrong("head", "The head that was kept is of event 0, and no book begins with its hash.", 0))
    for row in connection.execute(_EVENTS, (last_seq,)):
        found_seq, run_id, rows_sha256, kind, rung, reason, found_prev_hash, found_hash = _NAMING(row)
        if found_seq != seq + 1:
            wrong.append(Wrong("chain", f"Event {seq + 1} is missing.", found_seq))
        seq = found_seq
        if (broken := _link(seq, found_prev_hash, found_hash, row[:-2], prev_hash)) is not None:
            wrong.append(Wrong("chain", broken, seq))
        prev_hash = found_hash
        if head is not None and head.seq == seq and head.hash != prev_hash:
            what = f"Event {seq} has another hash than the head that was kept: rewritten."
            wrong.append(Wrong("head", what, seq))
        digest, result = None, results.at(seq)
        if result is not None:
            result_id = result[result_id_at]
            among = ["results", *[table for table, ids in having if result_id in ids]] if having else _RESULTS_ALONE
            digest = paid.digest(result_id, among, result)
        named = None if result is not None else named_by(kind, run_id, rung, reason, rows_sha256)
        if named is not None:
            strange = recorded.wrong_at(Stands(seq, run_id, *named, rows_sha256))
            wrong.extend(Wrong("rows", what, seq, run_id) for what in strange)
        elif digest != rows_sha256 and run in (None, run_id):
            what = f"The rows that event {seq} stands for do not have the digest that it carries."
            wrong.append(Wrong("rows", what, seq, run_id))
    if head is not None and head.seq > seq:
        what = f"The book ends at event {seq}, the head that was kept is {head.seq}: cut off."
        wrong.append(Wrong("head", what, seq))
    wrong.extend(Wrong("rows", what, at_seq) for at_seq, what in recorded.others(last_seq))
    return Walked(wrong, recorded.not_covered())


def _link(seq: int, own_prev_hash: str, own_hash: str, cells: Sequence[Any], prev_hash: str) -> str | None:
    """What is wrong with an event as a link of the chain, if anything is."""
    try:
        if own_prev_hash != prev_hash or own_hash != event_hash(prev_hash, cells):
            return _broken(seq, own_prev_hash, own_hash, cells, prev_hash)
    except Exception as error:  # noqa: BLE001 -- whatever stands in a cell is a finding, not the audit's end
        return f"Event {seq} has no hash: {reason_of(error)}."
    return None


def _broken(seq: int, own_prev_hash: str, own_hash: str, cells: Sequence[Any], prev_hash: str) -> str:
    """What was done to an event whose hash is not that of its content and its predecessor."""
    if own_hash == event_hash(own_prev_hash, cells):
        return f"Event {seq} does not have the hash of its predecessor: what stood before it was changed or taken out."
    for place in range(max(1, seq - _NEAR), seq + _NEAR + 1):
        there = (*cells[:_SEQ_AT], place, *cells[_SEQ_AT + 1 :])
        if own_hash == event_hash(own_prev_hash, there):
            return f"Event {seq} was written as event {place}: rows were put in another order."
    if own_prev_hash != prev_hash:
        return f"Event {seq} does not have the hash of its content and its predecessor: changed or put in its place."
    return f"Event {seq} does not have the hash of its content: it was changed after it was written."


def _with_rows(connection: sqlite3.Connection, table: str) -> frozenset[int]:
    """The results that have rows in a table: three look-ups less for each that has none."""
    rows = connection.execute(f"SELECT DISTINCT result_id FROM {table} WHERE result_id NOT NULL")
    return frozenset(result_id for (result_id,) in rows)

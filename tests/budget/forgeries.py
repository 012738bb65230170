"""What somebody with another SQLite client tries against rows that are written once."""

import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path

_OF_ANY_TABLE = (
    "INSERT OR REPLACE INTO {table} SELECT * FROM {table} LIMIT 1 OFFSET {n}",
    "REPLACE INTO {table} SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1",
    "INSERT OR IGNORE INTO {table} SELECT * FROM {table} LIMIT 1 OFFSET {n}",
    # A new number, and the rest of a row that is unique by more than its number.
    "INSERT OR REPLACE INTO {table} SELECT (SELECT max({column}) + 1 FROM {table}), {rest} FROM {table} LIMIT 1",
    "UPDATE OR REPLACE {table} SET {column} = {column}",
    "UPDATE OR IGNORE {table} SET {column} = {column} WHERE rowid = {n}",
    "DELETE FROM {table} WHERE rowid = {n} + 1",
)
_OF_THE_CHAIN = (
    # The number is right, the chain is not; and the other way round.
    "INSERT OR REPLACE INTO events SELECT {next}, {columns}, '{zero}', hash FROM events ORDER BY seq DESC LIMIT 1",
    "INSERT OR REPLACE INTO events SELECT {next} + 1, {columns}, hash, hash FROM events ORDER BY seq DESC LIMIT 1",
    "INSERT OR REPLACE INTO events SELECT 1, {columns}, hash, hash FROM events ORDER BY seq DESC LIMIT 1",
)

FORGERIES = _OF_ANY_TABLE + _OF_THE_CHAIN


def changed_by_forgery(path: Path, sql: str, table: str, number: int) -> list[str]:
    """Try one statement on a table (those of the chain: on events) and a row; returns the tables that lost a row by it.

    All is taken back at the end: a new row may be added, and the life of the book goes on without it.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as forger:
        columns = [row[1] for row in forger.execute(f"PRAGMA table_info({'events' if 'events' in sql else table})")]
        (head,) = forger.execute("SELECT max(seq) FROM events").fetchone()
        filled = sql.format(
            table=table, n=number, column=columns[0], columns=", ".join(columns[1:-2]), zero="0" * 64, next=head + 1,
            rest=", ".join(columns[1:]),
        )  # fmt: skip
        names = {"events", table}
        before = {name: set(forger.execute(f"SELECT * FROM {name}")) for name in names}
        forger.execute("BEGIN IMMEDIATE")
        with contextlib.suppress(sqlite3.IntegrityError):  # a trigger spoke, or a made-up number is no fitting id
            forger.execute(filled)
        lost = [name for name in names if not before[name] <= set(forger.execute(f"SELECT * FROM {name}"))]
        if forger.in_transaction:
            forger.execute("ROLLBACK")
        return lost

"""The book as lines of JSON, one row a line: tables in the order of the schema, rows by their key, all of one moment.

A line is an object: `table`, then the row's columns as they stand in the file. Texts that hold JSON stay texts, so that
their digests still fit. A blob becomes what sqlite-utils writes and reads, `{"$base64": true, "encoded": "…"}`, or its
digest, `{"$sha256": "…", "bytes": 12}`. NaN is no value of SQLite; an infinity would be forged, and becomes a text.
"""

import base64
import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from kernelgate.budget.connection import open_for_reading
from kernelgate.budget.errors import LedgerError, translate

Blobs: TypeAlias = Literal["base64", "sha256"]
_RELATIONS = """SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view')
  AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE '\\_%' ESCAPE '\\' ORDER BY type, rowid"""


class UnknownRelation(LedgerError):
    """The book has no such table or view."""


def export(path: Path, names: Sequence[str] = (), *, blobs: Blobs = "base64") -> Iterator[str]:
    """The lines of a book, without line ends, one after the other: however large the book is, one row is in memory.

    Args:
        path: of the ledger; it is only read.
        names: tables or views; none: all tables.
        blobs: whole, or only their SHA-256.

    Raises:
        LedgerError: no ledger, damaged, or no such table or view; before the first line, except for damage further on.
    """
    connection = open_for_reading(path)
    try:
        connection.text_factory = _text
        connection.execute("BEGIN")  # all tables of one moment, also while others write
        for name, order in _chosen(connection, names):
            cursor = connection.execute(f'SELECT * FROM "{name}" ORDER BY {order}')
            columns = [column[0] for column in cursor.description]
            for row in cursor:
                values = {"table": name} | {
                    column: _plain(value, blobs) for column, value in zip(columns, row, strict=True)
                }
                yield json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except sqlite3.Error as error:
        raise translate(error, path) from error
    finally:
        connection.close()


def _chosen(connection: sqlite3.Connection, names: Sequence[str]) -> list[tuple[str, str]]:
    """Name and ORDER BY of each table or view to write."""
    known: dict[str, str] = dict(connection.execute(_RELATIONS).fetchall())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnknownRelation(f"The ledger has no table or view {unknown[0]!r}; it has: {', '.join(known)}.")
    wanted = names or [name for name, kind in known.items() if kind == "table"]
    return [(name, _order(connection, name)) for name in wanted]


def _order(connection: sqlite3.Connection, name: str) -> str:
    """By the primary key; a view has none and is ordered by all of its columns."""
    columns = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
    key = sorted((column[5], column[1]) for column in columns if column[5])
    return ", ".join(f'"{column}"' for _, column in key) or ", ".join(str(n) for n in range(1, len(columns) + 1))


def _plain(value: Any, blobs: Blobs) -> Any:
    if isinstance(value, bytes):
        if blobs == "sha256":
            return {"$sha256": hashlib.sha256(value).hexdigest(), "bytes": len(value)}
        return {"$base64": True, "encoded": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _text(value: bytes) -> str:
    """Text that is no UTF-8 was forged or damaged; the rest of the book is worth exporting all the same."""
    return value.decode("utf-8", "replace")

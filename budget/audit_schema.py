"""Is the file made as this version makes it? Tables, indexes, triggers and views, and texts that are none."""

import re
import sqlite3
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from kernelgate.budget.earlier_views import EARLIER_VIEWS
from kernelgate.budget.migrations import queries, schema
from kernelgate.budget.triggers import expected_triggers
from kernelgate.tasks.model import sha256_hex

_POINTED: Final = re.compile(r"(REFERENCES \w+) \(\w+\)")
_OF_OTHERS: Final = frozenset({"_sqlite_migrations", "sqlite_sequence", "sqlite_stat1", "sqlite_stat4"})
"""Tables that SQLite itself and sqlite-utils keep in a file."""


class Part(NamedTuple):
    """Something in the file's schema that is not as this version makes it."""

    topic: Literal["triggers", "schema"]
    what: str


def wrong_parts(connection: sqlite3.Connection) -> Iterator[Part]:
    """Compare the whole of `sqlite_schema` with what this version writes; views may be those of an earlier one."""
    (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    wanted = _wanted(version)
    found = {
        (kind, name): text
        for kind, name, table, text in connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid"
        )
        if not (kind == "index" and text is None) and not (kind in ("table", "index") and table in _OF_OTHERS)
    }
    for (kind, name), text in wanted.items():
        topic: Literal["triggers", "schema"] = "triggers" if kind == "trigger" else "schema"
        if (kind, name) not in found:
            lost = ": rows may have been changed unseen" if kind == "trigger" else ""
            if kind != "view":  # it holds no data, and an earlier version did not have all of them
                yield Part(topic, f"The {kind} {name} is gone{lost}.")
        elif not _is_same(kind, name, found[kind, name], text):
            cure = "; opening the ledger with a server mends it" if kind == "view" else ""
            yield Part(topic, f"The {kind} {name} does not have the text that this version writes{cure}.")
    for kind, name in found:
        if (kind, name) not in wanted:
            if kind == "trigger":
                yield Part("triggers", f"The trigger {name} is none of a ledger's: it may change or swallow rows.")
            else:
                yield Part("schema", f"The {kind} {name} is no part of a ledger.")


def _wanted(version: int) -> dict[tuple[str, str], str]:
    made = sqlite3.connect(":memory:")
    try:
        made.executescript(schema(version))
        rows = made.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql NOT NULL").fetchall()
        tables = {name for kind, name, _ in rows if kind == "table"}
    finally:
        made.close()
    return {
        **{(kind, name): text for kind, name, text in rows},
        **{("trigger", name): text for name, text in expected_triggers().items() if _table_of(name) in tables},
        **{("view", name): f"CREATE VIEW {name} AS {select}" for name, select in queries().items()},
    }


def _table_of(trigger: str) -> str:
    return trigger.partition("_refuse_")[0]


def _is_same(kind: str, name: str, text: str, wanted: str) -> bool:
    if text == wanted:
        return True
    if kind == "view":
        return sha256_hex(text) in EARLIER_VIEWS.get(name, ())
    # The first books named the tables that they point to without the key, which is their primary key.
    return kind == "table" and _POINTED.sub(r"\1", text) == _POINTED.sub(r"\1", wanted)


class BadText(NamedTuple):
    """A cell of text that is not UTF-8."""

    table: str
    rowid: int
    column: str


def bad_texts(connection: sqlite3.Connection) -> Iterator[BadText]:
    """Every text of the book that is not UTF-8. Needs a connection of its own: its texts come as bytes."""
    connection.text_factory = bytes
    tables = [
        name.decode()
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
    ]
    for table in tables:
        texts = [
            row[1].decode()
            for row in connection.execute(f'PRAGMA table_info("{table}")')
            if row[2] in (b"TEXT", "TEXT")
        ]
        if not texts:
            continue
        columns = ", ".join(f'"{name}"' for name in texts)
        for rowid, *cells in connection.execute(f'SELECT rowid, {columns} FROM "{table}"'):
            for name, cell in zip(texts, cells, strict=True):
                if isinstance(cell, bytes) and not _is_utf8(cell):
                    yield BadText(table, rowid, name)


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True

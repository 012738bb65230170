"""Bringing a file to the schema of this version: numbered SQL steps, triggers, and one view per query.

The steps are migrations of sqlite-utils, so `sqlite-utils migrations` and others that know its table can tell them.
"""

import sqlite3
from pathlib import Path
from typing import Final

from kernelgate.budget.chain import Event, append
from kernelgate.budget.clock import Clock
from kernelgate.budget.errors import BookDamaged, BookTooNew, NotABook
from kernelgate.budget.model import HOUSE
from kernelgate.budget.recorded import COVERED_FROM, EARLIER, RecordedRows
from kernelgate.budget.triggers import expected_triggers

SCHEMA_VERSION: Final = 3
APPLICATION_ID: Final = 0x6B676174
"""`kgat`: stands in the file's header and tells a ledger from other SQLite files."""
_STEPS: Final = ("0001_the_book.sql", "0002_what_the_chain_covers.sql", "0003_owners_and_what_they_used.sql")
"""Step n brings version n-1 to n; a step is never edited after a release."""


def queries() -> dict[str, str]:
    """Name → SELECT of each file in `budget/queries`; each is also a view of that name."""
    folder = Path(__file__).parent / "queries"
    return {file.stem: file.read_text(encoding="utf-8").strip().rstrip(";") for file in sorted(folder.glob("*.sql"))}


def schema(version: int = SCHEMA_VERSION) -> str:
    """The SQL of the steps up to a version: what a book is made of, before its triggers and views."""
    folder = Path(__file__).parent / "schema"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in _STEPS[:version])


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Schema version of an open file; 0 for an empty one.

    Raises:
        NotABook: the file is SQLite, but not a ledger.
        BookTooNew: a later kernelgate wrote it.
        BookDamaged: it no longer says which schema it has.
    """
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if objects == 0:
        return 0
    # After the count: another process may be making the book right now, and both appear in one commit.
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise NotABook(f"{path} is a SQLite database, but not a ledger of kernelgate; name another ledger file.")
    (version,) = connection.execute("SELECT ifnull(max(version), 0) FROM schema_version").fetchone()
    if version < 1:
        raise BookDamaged(f"The ledger {path} no longer says which schema it has: rows were taken out; restore a copy.")
    if version > SCHEMA_VERSION:
        raise BookTooNew(
            f"The book {path} has schema {version}, and this kernelgate knows schemas up to {SCHEMA_VERSION};"
            " install the newer kernelgate or name another ledger file."
        )
    return int(version)


def migrate(connection: sqlite3.Connection, path: Path, clock: Clock) -> None:
    """Apply the missing steps and bring the views up to date. The caller holds an immediate transaction.

    Args:
        connection: of the book, in autocommit mode with a transaction begun.
        path: for messages.
        clock: stamps the steps.

    Raises:
        NotABook: the file is SQLite, but not a ledger.
        BookTooNew: a later kernelgate wrote it.
    """
    version = version_of(connection, path)
    if version < SCHEMA_VERSION:
        _bring_up(connection, clock)
    # The house pays from the start (qualifying, calibrating, the referee), and is to be seen among the accounts.
    if not connection.execute("SELECT 1 FROM accounts WHERE account_id = ?", (HOUSE,)).fetchone():
        connection.execute("INSERT INTO accounts (account_id, created_utc) VALUES (?, ?)", (HOUSE, clock.utc()))
    if 0 < version < COVERED_FROM:
        _cover_earlier_rows(connection, clock)
    # A view holds no data: that of an older kernelgate, or an edited one, gives way to the query of this one.
    present = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'").fetchall())
    for name, select in queries().items():
        wanted = f"CREATE VIEW {name} AS {select}"
        if present.get(name) != wanted:
            connection.execute(f"DROP VIEW IF EXISTS {name}")
            connection.execute(wanted)


def _bring_up(connection: sqlite3.Connection, clock: Clock) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _apply(connection, clock)
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
    for name, text in expected_triggers().items():
        if name not in present:
            connection.execute(text)


def _cover_earlier_rows(connection: sqlite3.Connection, clock: Clock) -> None:
    """One event for all rows from before the chain covered them: what they say now is what they will have said."""
    rows = RecordedRows(connection)
    digest = rows.digest_of_all(rows.others({}))
    append(connection, clock, Event(kind="note", account_id=HOUSE, reason=EARLIER, rows_sha256=digest))


def _apply(connection: sqlite3.Connection, clock: Clock) -> None:
    """Run the steps that sqlite-utils finds pending, inside the transaction that the caller holds."""
    # Imported here: it takes longer than all else at the start, and most starts find the schema as it should be.
    from sqlite_utils import Database, Migrations

    steps = Migrations("kernelgate")
    for number, name in enumerate(_STEPS, 1):

        def step(db: Database, /, number: int = number, name: str = name) -> None:
            script = (Path(__file__).parent / "schema" / name).read_text(encoding="utf-8")
            for statement in statements(script):
                db.conn.execute(statement)
            db.conn.execute("INSERT INTO schema_version VALUES (?, ?)", (number, clock.utc()))

        steps(name=name.removesuffix(".sql"))(step)
    steps.apply(Database(connection))


def statements(script: str) -> list[str]:
    """Split a script: `executescript` would commit the transaction that the steps belong to."""
    found: list[str] = []
    current = ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    return found

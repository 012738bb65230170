"""One connection to the book: opening a file with clear errors, immediate transactions, typed look-ups."""

import errno
import fcntl
import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kernelgate.budget.chain import head_of
from kernelgate.budget.clock import Clock, SystemClock
from kernelgate.budget.errors import (
    NO_LOCKS,
    BookDamaged,
    BookNotFound,
    BookReadOnly,
    BookWithoutLocks,
    LedgerError,
    NotABook,
    busy,
    translate,
)  # fmt: skip
from kernelgate.budget.logfile import WITHOUT_LOCKS, LogFile
from kernelgate.budget.migrations import SCHEMA_VERSION, migrate, version_of
from kernelgate.budget.records import Head
from kernelgate.budget.rows import PaidRows
from kernelgate.budget.rules import Rules, find_rules

BUSY_TIMEOUT_S: Final = 5.0
"""Longer than any healthy transaction of another process by a factor of a thousand."""
HURRIED_S: Final = 0.25
"""Other writers take milliseconds: enough for those that come to an end."""
_SMALLEST_BYTES: Final = 512
"""Of a SQLite database; SQLite takes what is shorter for an empty one and writes over it."""
_EMPTIED: Final = (
    "The book {path} has no tables: the log {log} that held them is gone; put it back, or start a new ledger elsewhere."
)
_RETRY_S: Final = 0.001
"""Between two attempts to become the writer where another program holds SQLite's own lock. Its own handler backs off to
100 ms, so that among eight saturated writers one was starved for over 5 s; equal short waits are fair."""
_CHECKPOINT_PAGES: Final = 4_000
"""The log is copied into the file each 16 MB, in the turn of whoever commits then, while the others wait some 20 ms.
With SQLite's 1,000 pages that hit more than one spend in a hundred."""


class Session:
    """One open book. Use it from the thread that opened it; open another for another thread."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, clock: Clock, rules: Rules, busy_timeout_s: float
    ) -> None:
        self._connection = connection
        self._path = path
        self._clock = clock
        self._rules = rules
        self._busy_timeout_s = self._patience_s = busy_timeout_s
        self._log: LogFile | None = None
        """None until the book is open: before that SQLite syncs by itself."""
        self._durable_seq = 0
        """The last event that a head was told of."""

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], clock: Clock | None = None, *, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> Self:
        """Open the book at a path; create it (file mode 0600) and its directory where they are missing.

        Raises:
            LedgerError: not SQLite, not a ledger, newer schema, read-only, disk full, locked, damaged; each says
                what to do.
        """
        file = Path(path).absolute()
        clock = clock or SystemClock()
        _make_file(file)
        _require_log(file)
        log_was_there = log_beside(file).exists()
        try:
            connection = sqlite3.connect(file, timeout=busy_timeout_s, isolation_level=None)
        except sqlite3.Error as error:
            raise translate(error, file) from error
        session = cls(connection, file, clock, find_rules(), busy_timeout_s)
        try:
            session._prepare(log_was_there=log_was_there)
        except sqlite3.Error as error:
            session.close()
            raise _explained(error, file) from error
        except LedgerError as error:
            session.close()
            if isinstance(error.__cause__, sqlite3.Error):  # from the transaction that brings the schema up to date
                raise _explained(error.__cause__, file) from error.__cause__
            raise
        except BaseException:
            session.close()
            raise
        return session

    @classmethod
    def reading(cls, path: str | os.PathLike[str]) -> Self:
        """A book that is only looked into: nothing beside its views and rows can be asked of it.

        Raises:
            LedgerError: as `open_for_reading`.
        """
        file = Path(path).absolute()
        return cls(open_for_reading(file), file, SystemClock(), find_rules(), BUSY_TIMEOUT_S)

    def _prepare(self, *, log_was_there: bool) -> None:
        version = version_of(self._connection, self._path)
        if version == 0:
            (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
            if mode == "wal" and not log_was_there:
                raise BookDamaged(_EMPTIED.format(path=self._path, log=log_beside(self._path)))
            # Before there is a log: the tables of a book stand in its file from the start, so that one without them
            # is known to have lost its log.
            with self.transaction():
                migrate(self._connection, self._path, self._clock)
        _use_wal(self._connection, self._path, self._busy_timeout_s)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._connection.execute("PRAGMA foreign_keys = ON")
        with self.transaction():
            migrate(self._connection, self._path, self._clock)
            if (
                version == SCHEMA_VERSION
            ):  # writes nothing, but fails now rather than at the first hold if the file is read-only
                self._connection.execute("UPDATE accounts SET account_id = account_id WHERE 0")
        self._paid = PaidRows(self._connection)
        self._log = _log_of(self._path)
        self._connection.execute("PRAGMA synchronous = NORMAL")  # from here on the log is synced by us

    def close(self) -> None:
        """Close the connection; open holds stay open."""
        if self._log is not None:
            self._log.close()
            self._log = None
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """Where the book lies."""
        return self._path

    @property
    def rules(self) -> Rules:
        """The rules that runs of this book may use."""
        return self._rules

    def head(self) -> Head:
        """Number and hash of the last event. Whoever gets a head may keep it: it is on the disk before it is told."""
        try:
            head = head_of(self._connection)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        if head.seq > self._durable_seq and not self._connection.in_transaction:
            self._make_durable()
            self._durable_seq = head.seq
        return head

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Generator[sqlite3.Connection]:
        """An immediate transaction: all or nothing, one writer at a time. Nested use joins the outer one.

        A deferred one would fail at once when two processes read first and write then. What was written is on the disk
        when this returns; without `durable`, once the next such transaction returns or `head` is asked.
        """
        connection = self._connection
        if connection.in_transaction:
            yield connection
            return
        before = connection.total_changes
        self._take_turn()
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        finally:
            self._pass_turn()
        if durable and connection.total_changes != before:
            self._make_durable()

    def hurry(self, *, soon: bool) -> None:
        """How long to wait for other writers from now on: hardly, for who has waited already, or as long as usual."""
        patience_s = min(HURRIED_S, self._busy_timeout_s) if soon else self._busy_timeout_s
        if patience_s != self._patience_s:
            self._patience_s = patience_s
            self._connection.execute(f"PRAGMA busy_timeout = {round(patience_s * 1000)}")

    def _take_turn(self) -> None:
        if self._log is None:
            return
        if not self._log.take_turn(self._patience_s):
            raise busy(self._path)
        if self._log.is_gone():
            self._log.pass_turn()
            raise BookDamaged(
                f"The log {log_beside(self._path)} was taken away while the book was open: what is written now would "
                "be lost, so nothing was written and nothing charged; end all that have the book open, then run "
                "`kernelgate audit` with the last head that you kept."
            )

    def _pass_turn(self) -> None:
        if self._connection.in_transaction:  # something failed; a full disk has rolled back by itself
            self._connection.execute("ROLLBACK")
        if self._log is not None:
            self._log.pass_turn()

    def _make_durable(self) -> None:
        if self._log is None:
            return
        try:
            self._log.make_durable()
        except OSError as error:
            raise BookDamaged(
                f"The disk under the book {self._path} failed ({error.strerror}): what was just written may be lost; "
                "check the disk, then run `kernelgate audit`."
            ) from error

    def query(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """All rows of a SELECT, as column name → value; the views of `budget/queries` are there for it."""
        try:
            cursor = self._connection.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def _tuple(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        """The first row of a query as a tuple, if there is one: for what is read while others wait."""
        try:
            row: tuple[Any, ...] | None = self._connection.execute(sql, values).fetchone()
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        return row

    def _row(self, sql: str, *values: object) -> dict[str, Any] | None:
        """The first row of a query, if there is one."""
        rows = self.query(sql, *values)
        return rows[0] if rows else None


def open_for_reading(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """A connection that cannot write, for audits and exports.

    Raises:
        LedgerError: missing, not a ledger, newer schema, damaged.
    """
    file = Path(path).absolute()
    if file.is_dir():
        inside = (*file.glob("ledger.db"), *sorted(file.glob("*/ledger.db")), file / "ledger.db")  # a stream, a folder
        raise NotABook(f"{file} is a folder; name the ledger file in it, such as {inside[0]}.")
    if not file.is_file():
        raise BookNotFound(f"There is no book at {file}; check the path.")
    _check_size(file)
    _require_log(file)
    uri = f"{file.as_uri()}?mode=ro"
    if not file.with_name(file.name + "-wal").exists() and not os.access(file.parent, os.W_OK):
        uri += "&immutable=1"  # on a read-only medium SQLite cannot make the files that a WAL book needs
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S)
    except sqlite3.Error as error:
        raise _explained(error, file) from error
    try:
        version = version_of(connection, file)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise _explained(error, file) from error
        raise
    if version == 0:
        connection.close()
        raise NotABook(f"{file} is an empty SQLite database, not a ledger of kernelgate; check the path.")
    return connection


def log_beside(file: Path) -> Path:
    """Where SQLite keeps the log of a book: also of one that is reached through a link."""
    return Path(f"{os.path.realpath(file)}-wal")


def _require_log(file: Path) -> None:
    """SQLite makes the log before the shared memory, and removes it after: memory alone means a log that was lost."""
    log, memory = log_beside(file), Path(f"{os.path.realpath(file)}-shm")
    if not log.exists() and memory.exists() and not log.exists():
        raise BookDamaged(
            f"The log {log} is gone, and what stood in it alone with it; put it back. To go on without what it said, "
            f"remove {memory} too, then run `kernelgate audit` with the last head that you kept."
        )


def _log_of(file: Path) -> LogFile:
    try:
        return LogFile.of(file)
    except OSError as error:
        raise BookReadOnly(
            f"The log beside the book {file} cannot be opened ({error.strerror}); fix its permissions."
        ) from error


def _make_file(file: Path) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except PermissionError as error:
        raise BookReadOnly(
            f"The folder {file.parent} for the book cannot be made: permission denied; name a folder of yours."
        ) from error
    except OSError as error:
        raise BookNotFound(
            f"The folder {file.parent} for the book cannot be made ({error.strerror}); name another path."
        ) from error
    if file.is_dir():
        raise NotABook(f"{file} is a folder; name a file for the book.")
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _require_plain_file(file)
        _check_size(file)
    except OSError as error:
        raise BookReadOnly(
            f"The book {file} cannot be made ({error.strerror}); make the folder writable or name another path."
        ) from error


def _require_plain_file(file: Path) -> None:
    """Before it is opened: a pipe would be waited for, and a link that leads nowhere has no permissions to mend."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError as error:
        raise BookNotFound(
            f"The book {file} is a link to {os.path.realpath(file)}, which is not there; mend or remove the link, or "
            "name another path."
        ) from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            return  # not to be seen by this user: opening it says so
        raise BookNotFound(
            f"The book {file} is a link that leads back to itself; remove it, or name another path."
        ) from error
    if not stat.S_ISREG(mode):
        raise NotABook(f"{file} is a pipe, a socket or a device, no file; move it away, or name another path.")


def _check_size(file: Path) -> None:
    """Told by its size and not by reading it: closing a file drops all POSIX locks of this process on it, also those of
    a connection that another part of the process has open. What is longer SQLite itself looks at.
    """  # noqa: D205 -- the reason belongs to the first sentence
    try:
        size_bytes = file.stat().st_size
    except OSError as error:
        raise BookReadOnly(f"The book {file} cannot be read ({error.strerror}); fix its permissions.") from error
    if 0 < size_bytes < _SMALLEST_BYTES:
        raise NotABook(f"{file} is not a SQLite database; name another ledger file or move this one away.")


def _explained(error: sqlite3.Error, file: Path) -> LedgerError:
    """The book's own error. Where locks are missing, SQLite can only say that somebody else has one."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR):
        try:
            with tempfile.TemporaryFile(dir=file.parent) as beside:
                fcntl.lockf(beside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as refused:
            if refused.errno in WITHOUT_LOCKS:
                return BookWithoutLocks(NO_LOCKS.format(path=file, cause=refused.strerror))
    return translate(error, file)


def _use_wal(connection: sqlite3.Connection, path: Path, busy_timeout_s: float) -> None:
    give_up_s = time.monotonic() + busy_timeout_s
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > give_up_s:
                raise
            time.sleep(_RETRY_S)
        else:
            if mode != "wal":  # SQLite then goes on with another mode, and says nothing
                raise BookWithoutLocks(NO_LOCKS.format(path=path, cause=f"SQLite offers journal mode {mode} alone"))
            return


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY

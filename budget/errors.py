"""What can go wrong with the book, each as one sentence: what, why, what to do."""

import sqlite3
from pathlib import Path
from typing import Final


class LedgerError(Exception):
    """Base of everything that the ledger raises on purpose. Nothing was written, nothing charged."""

    retriable: bool = False
    """Whether the same call may succeed a little later."""


class BookBusy(LedgerError):
    """Another process kept the write lock for longer than the busy time-out."""

    retriable = True


class BookNotFound(LedgerError):
    """There is no file to read, or its directory cannot be made."""


class NotABook(LedgerError):
    """The file is not SQLite, or is SQLite but not a ledger of kernelgate."""


class BookTooNew(LedgerError):
    """The file has a schema that a later version of kernelgate wrote."""


class BookReadOnly(LedgerError):
    """The file or its directory may not be written."""


class BookDiskFull(LedgerError):
    """The disk, the quota or the file-size limit is used up, or the disk fails."""

    retriable = True


class BookWithoutLocks(LedgerError):
    """The file system keeps no locks or no shared memory between processes, as some network shares do not."""


class BookDamaged(LedgerError):
    """SQLite cannot read or write the file: I/O error or damaged pages."""


class BookRefusedRow(LedgerError):
    """A row broke a constraint or an append-only trigger of the book: a bug of ours or a forgery."""


class IdempotencyConflict(LedgerError):
    """The idempotency key was used before with other arguments."""


class UnknownId(LedgerError):
    """No such run, candidate, job, hold or result, or it belongs to another account."""


class HoldClosed(LedgerError):
    """The hold was ended, or extended, before: each happens once."""


NO_LOCKS: Final = (
    "The book {path} lies on a file system that does not keep processes apart (no locks, or no shared memory: {cause});"
    " put it on a local disk and name that with --data or KERNELGATE_HOME."
)
_SENTENCES: Final[dict[int, tuple[type[LedgerError], str]]] = {
    sqlite3.SQLITE_BUSY: (BookBusy, "The book {path} is busy: another process writes; nothing was charged, try again."),
    sqlite3.SQLITE_LOCKED: (BookBusy, "The book {path} is locked by this process; nothing was charged, try again."),
    sqlite3.SQLITE_READONLY: (
        BookReadOnly, "The book {path} cannot be written: the file or its directory is read-only; make it writable or"
        " name another ledger file."),
    sqlite3.SQLITE_PERM: (BookReadOnly, "The book {path} may not be opened by this user; fix its permissions."),
    sqlite3.SQLITE_CANTOPEN: (
        BookReadOnly, "The book {path} cannot be opened: SQLite needs to write the file and its directory; make both"
        " writable or name another ledger file."),
    sqlite3.SQLITE_FULL: (
        BookDiskFull, "The book {path} cannot grow: the disk or the quota is full; free space, nothing was charged."),
    sqlite3.SQLITE_IOERR: (
        BookDiskFull, "The book {path} cannot be written ({cause}): the disk is full or failing, or a size limit is"
        " reached; free space or raise the limit."),
    sqlite3.SQLITE_NOTADB: (NotABook, "{path} is not a SQLite database; name another file or move this one away."),
    sqlite3.SQLITE_CORRUPT: (
        BookDamaged, "The book {path} is damaged; keep a copy, and rescue the rest with `sqlite3 FILE .recover`."),
    sqlite3.SQLITE_CONSTRAINT: (BookRefusedRow, "The book {path} refused a row ({cause}); nothing was written."),
}  # fmt: skip


def busy(path: Path) -> BookBusy:
    """Others wrote for longer than we had patience."""
    return BookBusy(_SENTENCES[sqlite3.SQLITE_BUSY][1].format(path=path))


def translate(error: sqlite3.Error, path: Path) -> LedgerError:
    """The book's own error for one of SQLite's; chain it with `raise … from error`."""
    code = getattr(error, "sqlite_errorcode", None)
    kind, sentence = _SENTENCES.get(
        (code or 0) & 0xFF,
        (BookDamaged, "The book {path} failed ({cause}); check the disk, then run `kernelgate audit`."),
    )
    return kind(sentence.format(path=path, cause=error))


def one_line(text: str) -> str:
    """A text that an agent, a client or a forger may have written: on one line, without what would steer a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


class RuleNotHere(LedgerError, LookupError):
    """A run or a decision goes by a rule, or by a version of it, that this kernelgate does not have."""

"""Result, sample, artifact and observation rows: how they are written, digested and read back."""

import hashlib
import json
import sqlite3
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

from kernelgate.budget.chain import require_row
from kernelgate.budget.records import ArtifactRecord, Json, ResultRecord, SampleInput, SampleRecord
from kernelgate.tasks.model import canonical_json, sha256_hex

PAID_TABLES: Final = ("results", "samples", "artifacts", "observations")
"""What the `rows_sha256` of an event covers; each table's rows in order of their first column."""
RESULT_ID_COLUMN: Final = "result_id"
SampleRows: TypeAlias = tuple[SampleRecord, ...]
Cells: TypeAlias = Sequence[object]


class RowText:
    """The canonical JSON of a table's rows, put together by hand: an audit makes it for each row of the book."""

    def __init__(self, columns: Iterable[str]) -> None:
        self.columns = tuple(sorted(columns))
        self._template = "{" + ",".join(f"{encode_basestring(name)}:%s" for name in self.columns) + "}"

    def of(self, cells: Cells) -> str:
        """The text of one row; `cells` in the order of `columns`. Blobs stand in by their SHA-256."""
        return self._template % tuple(
            [
                encode_basestring(cell) if type(cell) is str
                else "null" if cell is None
                else _blob_text(cell) if type(cell) is bytes
                else cell  # numbers read in a template as they do in JSON
                for cell in cells
            ]
        )  # fmt: skip


def _blob_text(blob: bytes) -> str:
    return f'"{hashlib.sha256(blob).hexdigest()}"'


def row_text_of(connection: sqlite3.Connection, table: str) -> RowText:
    """The text of a table's rows, with the columns that it has in this file."""
    return RowText(name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,)))


class PaidRows:
    """The digest over all rows that one event stands for, as they stand in the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts = {table: row_text_of(connection, table) for table in PAID_TABLES}
        self._selects = {
            table: f"SELECT {', '.join(text.columns)} FROM {table} WHERE {RESULT_ID_COLUMN} = ? ORDER BY rowid"
            for table, text in self._texts.items()
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the results table, in the order in which `digest` takes a result."""
        return self._texts["results"].columns

    def digest(self, result_id: int, among: Collection[str] = PAID_TABLES, result: Cells | None = None) -> str:
        """SHA-256 over the canonical JSON of a result's rows, table by table.

        Args:
            result_id: the result.
            among: tables that may have rows of it; the others are not looked into.
            result: the cells of the result itself, where they were read before.
        """
        texts = _NO_ROWS.copy()
        for table in among:
            text = self._texts[table]
            if table == "results" and result is not None:
                texts[table] = text.of(result)
            else:
                texts[table] = ",".join(map(text.of, self._connection.execute(self._selects[table], (result_id,))))
        return sha256_hex(_PAID % texts)


_NO_ROWS: Final[dict[str, str]] = dict.fromkeys(PAID_TABLES, "")
_PAID: Final = "{" + ",".join(f'"{table}":[%({table})s]' for table in sorted(PAID_TABLES)) + "}"


def insert(connection: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> int:
    """Insert one row; returns its row id. Raises `BookRefusedRow` where it did not appear."""
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    cursor = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))
    require_row(cursor, table)
    return int(cursor.lastrowid or 0)


def insert_samples(connection: sqlite3.Connection, result_id: int, samples: Iterable[SampleInput]) -> None:
    """Insert the raw blocks of a result."""
    for sample in samples:
        insert(connection, "samples", {
            "result_id": result_id, "workload": sample.workload, "block_index": sample.block_index,
            "side": sample.side, "samples_us": pack_us(sample.samples_us), "n": len(sample.samples_us),
            "outside_us": pack_us(sample.outside_us), "verified": int(sample.verified), "voided": int(sample.voided),
            "state_json": None if sample.state is None else canonical_json(sample.state),
        })  # fmt: skip


def insert_observation(
    connection: sqlite3.Connection, environment_id: str, result_id: int | None, facts: Json, utc: str
) -> int:
    """Insert the state of a device while it measured; returns its number."""
    return insert(connection, "observations", {
        "environment_id": environment_id, "result_id": result_id, "facts_json": canonical_json(facts),
        "created_utc": utc,
    })  # fmt: skip


def pack_us(samples_us: Sequence[float]) -> bytes:
    """Times as float32, little-endian, whatever the host is."""
    return struct.pack(f"<{len(samples_us)}f", *samples_us)


def unpack_us(blob: bytes) -> tuple[float, ...]:
    """The times of a blob."""
    return struct.unpack(f"<{len(blob) // 4}f", blob)


def result_of(row: Mapping[str, Any]) -> ResultRecord:
    """A row of `results` as a record."""
    columns = {**row, "report": json.loads(row["report_json"])}
    del columns["report_json"]
    return ResultRecord.model_validate(columns, strict=False)


def samples_of(rows: Iterable[Mapping[str, Any]]) -> SampleRows:
    """Rows of `samples` as records."""
    return tuple(
        SampleRecord(
            result_id=row["result_id"],
            workload=row["workload"],
            block_index=row["block_index"],
            side=row["side"],
            samples_us=unpack_us(row["samples_us"]),
            outside_us=unpack_us(row["outside_us"]),
            verified=bool(row["verified"]),
            voided=bool(row["voided"]),
            state=None if row["state_json"] is None else json.loads(row["state_json"]),
        )
        for row in rows
    )


def artifact_of(row: Mapping[str, Any]) -> ArtifactRecord:
    """A row of `artifacts` as a record."""
    return ArtifactRecord(**{name: row[name] for name in ArtifactRecord.model_fields})

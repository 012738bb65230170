"""Result, sample, artifact and observation rows: how they are written, digested and read back."""

import hashlib
import json
import sqlite3
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kernelgate.budget.records import ArtifactRecord, Json, ResultRecord, SampleInput, SampleRecord
from kernelgate.tasks.model import canonical_json, sha256_hex

PAID_TABLES: Final = ("results", "samples", "artifacts", "observations")
"""What the `rows_sha256` of an event covers, in this order; each table's rows in order of their first column."""
RESULT_ID_COLUMN: Final = "result_id"
SampleRows: TypeAlias = tuple[SampleRecord, ...]


@dataclass(frozen=True)
class Rows:
    """The rows that one event stands for, table by table, as column → value."""

    tables: Mapping[str, Sequence[Mapping[str, Any]]]

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of all rows; blobs stand in by their own SHA-256."""
        plain = {
            table: [{name: _plain(value) for name, value in row.items()} for row in self.tables.get(table, ())]
            for table in PAID_TABLES
        }
        return sha256_hex(canonical_json(plain))  # type: ignore[arg-type]  # the values are SQLite's, so JSON's


def _plain(value: Any) -> Any:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value


def rows_of_result(connection: sqlite3.Connection, result_id: int, among: Collection[str] = PAID_TABLES) -> Rows:
    """Read back all rows of a result, as they stand in the file; `among` leaves out tables known to have none."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for table in among:
        cursor = connection.execute(f"SELECT * FROM {table} WHERE {RESULT_ID_COLUMN} = ? ORDER BY 1", (result_id,))
        names = [column[0] for column in cursor.description]
        tables[table] = [dict(zip(names, row, strict=True)) for row in cursor]
    return Rows(tables)


def insert(connection: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> int:
    """Insert one row; returns its row id."""
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    cursor = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))
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
) -> None:
    """Insert the state of a device while it measured."""
    insert(connection, "observations", {
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

"""What Datasette needs to show a ledger as a site: titles, units, and each query of `budget/queries` as a page.

Pure: made from the schema and the queries themselves, so that it cannot say anything else than they do.
"""

import re
import sqlite3
from contextlib import closing
from typing import Final

from pydantic import JsonValue

from kernelgate.budget.migrations import queries, schema, statements

UNITS: Final = {"_s": "s", "_bytes": "B"}
"""End of a column's name → its unit, as Datasette's unit library spells it."""
MEANINGS: Final = {
    "_utc": "UTC, ISO 8601",
    "_json": "canonical JSON",
    "_sha256": "SHA-256, hexadecimal",
    "_s": "seconds",
    "_us": "microseconds",
    "_ns": "nanoseconds",
    "_bytes": "bytes",
    "_share": "0 to 1",
    "ratio": "baseline time / candidate time: above 1 is faster",
}
"""End of a column's name → what it is in; said of each column for which the schema has no words of its own."""
TABLES: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    # Table → title, newest first by which column, facets.
    "events": ("Events: the hash chain", "seq", ("kind", "rung", "run_id", "refusal_kind")),
    "results": ("Results, also failed ones", "event_seq", ("rung", "verdict", "run_id", "code")),
    "candidates": ("Candidates with their sources", "number", ("run_id", "language")),
    "runs": ("Runs", "number", ("account_id", "task_name", "rule")),
    "jobs": ("Jobs", "number", ("state", "tool", "run_id")),
    "samples": ("Raw samples, as blobs of float32", "sample_id", ("side", "workload")),
    "artifacts": ("Files beside the ledger", "artifact_id", ("name", "run_id")),
    "observations": ("State of the device while measuring", "observation_id", ()),
    "environments": ("Environments and compile targets", "created_utc", ()),
    "tasks": ("Tasks, with the source of their references", "created_utc", ()),
    "qualifications": ("Judgements of tasks", "qualification_id", ("qualified",)),
    "calibrations": ("Calibrations", "calibration_id", ("kind",)),
    "accounts": ("Accounts and their caps", "created_utc", ()),
    "schema_version": ("Steps of the schema", "version", ()),
}
_COLUMN: Final = re.compile(r"^  (?P<name>[a-z_0-9]+) [A-Z]+[^-]*?,?\s*(?:--\s*(?P<said>.*))?$")
_TABLE: Final = re.compile(r"^CREATE TABLE (?P<name>\w+)", re.MULTILINE)


def metadata(database: str) -> dict[str, JsonValue]:
    """The metadata of one ledger; `database` is its file name without the suffix, by which Datasette knows it."""
    said = _said_of_columns()
    tables: dict[str, JsonValue] = {"_sqlite_migrations": {"hidden": True}}
    for name, columns in _columns().items():
        title, newest, facets = TABLES.get(name, (_title(name), "", ()))
        tables[name] = {
            "title": title,
            **({"description": _description(queries()[name])} if name in queries() else {}),
            **({"sort_desc": newest} if newest else {}),
            **({"facets": list(facets)} if facets else {}),
            "units": {column: unit for column in columns if (unit := _unit(column))},
            "columns": {
                column: text for column in columns if (text := said.get((name, column)) or _meaning(column))
            },
        }  # fmt: skip
    pages: dict[str, JsonValue] = {
        f"show_{name}": {"title": _title(name), "description": _description(text), "sql": text}
        for name, text in queries().items()
    }
    return {
        "title": "kernelgate ledger",
        "description": "What was spent, why each promotion was granted or refused, and every measurement. "
        "`kernelgate audit` proves that nothing was changed.",
        "databases": {database: {"title": "The ledger", "tables": tables, "queries": pages}},
    }


def _columns() -> dict[str, list[str]]:
    """Tables and views of a book of this version, each with its columns."""
    with closing(sqlite3.connect(":memory:")) as blank:
        for statement in statements(schema()):
            blank.execute(statement)
        for name, select in queries().items():
            blank.execute(f"CREATE VIEW {name} AS {select}")
        names = [name for (name,) in blank.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
        return {name: [row[1] for row in blank.execute(f"PRAGMA table_info({name})")] for name in names}


def _said_of_columns() -> dict[tuple[str, str], str]:
    """(table, column) → the comment behind it in the schema."""
    said: dict[tuple[str, str], str] = {}
    table = ""
    for line in schema().splitlines():
        if found := _TABLE.match(line):
            table = found["name"]
        elif (column := _COLUMN.match(line)) and column["said"]:
            said[table, column["name"]] = column["said"]
    return said


def _description(select: str) -> str:
    """The comment at the head of a query."""
    lines: list[str] = []
    for line in select.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return " ".join(lines)


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _unit(column: str) -> str:
    return next((unit for end, unit in UNITS.items() if column.endswith(end)), "")


def _meaning(column: str) -> str:
    return next((text for end, text in MEANINGS.items() if column.endswith(end)), "")

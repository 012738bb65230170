"""What makes the book append-only: triggers on each table, as text that the audit compares with the file."""

from typing import Final

GENESIS_HASH: Final = "0" * 64
"""`prev_hash` of the first event."""

_KEYS: Final[dict[str, tuple[str, ...]]] = {
    # Table → what identifies a row. INSERT OR REPLACE would delete the old row without firing a DELETE trigger.
    "schema_version": ("version",),
    "tasks": ("task_digest",),
    "environments": ("environment_id",),
    "qualifications": ("qualification_id",),
    "calibrations": ("calibration_id",),
    "runs": ("number", "run_id", "account_id, idempotency_key"),
    "candidates": ("number", "candidate_id", "run_id, source_sha256"),
    "results": ("result_id", "event_seq"),
    "samples": ("sample_id", "result_id, workload, block_index, side"),
    "artifacts": ("artifact_id", "result_id, name"),
    "observations": ("observation_id",),
}


def _refuse(table: str, when: str, condition: str, sentence: str) -> str:
    clause = f" WHEN {condition}" if condition else ""
    name = f"{table}_refuse_{when.split()[-1].lower()}"
    return f"CREATE TRIGGER {name} {when} ON {table}{clause} BEGIN SELECT RAISE(ABORT, '{sentence}'); END"


def _taken(table: str, keys: tuple[str, ...]) -> str:
    same = [
        "(" + " AND ".join(f"{column} = NEW.{column}" for column in key.split(", ")) + ")"
        for key in keys
    ]  # fmt: skip
    return f"EXISTS (SELECT 1 FROM {table} WHERE {' OR '.join(same)})"


_NEXT_EVENT: Final = (
    "NEW.seq IS NOT (SELECT ifnull(max(seq), 0) + 1 FROM events)"
    f" OR NEW.prev_hash IS NOT ifnull((SELECT hash FROM events ORDER BY seq DESC LIMIT 1), '{GENESIS_HASH}')"
    # Each of these would be a unique conflict, which INSERT OR REPLACE resolves by deleting the older event.
    " OR (NEW.kind IN ('settle', 'release') AND EXISTS"
    " (SELECT 1 FROM events WHERE hold_seq = NEW.hold_seq AND kind IN ('settle', 'release')))"
    " OR (NEW.kind = 'extend' AND EXISTS"
    " (SELECT 1 FROM events WHERE hold_seq = NEW.hold_seq AND kind = 'extend'))"
    " OR (NEW.kind = 'grant' AND EXISTS (SELECT 1 FROM events WHERE run_id = NEW.run_id AND kind = 'grant'))"
    " OR (NEW.kind = 'close' AND EXISTS (SELECT 1 FROM events WHERE run_id = NEW.run_id AND kind = 'close'))"
)


def expected_triggers() -> dict[str, str]:
    """Name → text of every trigger of the book."""
    texts = [
        _refuse("events", "BEFORE UPDATE", "", "events are append-only"),
        _refuse("events", "BEFORE DELETE", "", "events are append-only"),
        _refuse("events", "BEFORE INSERT", _NEXT_EVENT, "not the next event of the chain"),
    ]
    for table, keys in _KEYS.items():
        texts.append(_refuse(table, "BEFORE UPDATE", "", f"{table} are insert-only"))
        texts.append(_refuse(table, "BEFORE DELETE", "", f"{table} are insert-only"))
        texts.append(_refuse(table, "BEFORE INSERT", _taken(table, keys), f"{table}: the row exists"))
    return {text.split()[2]: text for text in texts}

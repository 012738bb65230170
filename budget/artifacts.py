"""Artifacts: files beside the book, named by their SHA-256, listed in the book."""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from kernelgate.budget.errors import BookDiskFull, LedgerError
from kernelgate.budget.reads import Reads
from kernelgate.budget.records import ArtifactInput, ArtifactRecord
from kernelgate.budget.rows import artifact_of, insert

RUN_ARTIFACT_LIMIT_BYTES: Final = 256 << 20
"""Kept per run; what exceeds it is listed with its digest, but not kept."""

FileState: TypeAlias = Literal["as_written", "missing", "changed", "unreadable"]


class ArtifactGone(LedgerError):
    """The row is there, the file is not: pruned, or never kept."""


class Artifacts(Reads):
    """Keeping and reading artifacts."""

    def artifacts(self, candidate_id: str) -> tuple[ArtifactRecord, ...]:
        """The artifacts of a candidate's results, oldest first."""
        rows = self.query(
            """SELECT a.* FROM artifacts a JOIN results r ON r.result_id = a.result_id
            WHERE r.candidate_id = ? ORDER BY a.artifact_id""",
            candidate_id,
        )
        return tuple(artifact_of(row) for row in rows)

    def read_artifact(self, artifact: ArtifactRecord) -> bytes:
        """The bytes of an artifact, checked against its digest.

        Raises:
            ArtifactGone: the file was pruned, changed, or never kept.
        """
        if artifact.path is None:
            raise ArtifactGone(f"Artifact {artifact.name} was not kept: the run's 256 MiB were used up.")
        try:
            data = (self.path.parent / artifact.path).read_bytes()
        except OSError as error:
            raise ArtifactGone(f"Artifact {artifact.name} is gone from beside the book; measure again.") from error
        if hashlib.sha256(data).hexdigest() != artifact.artifact_sha256:
            raise ArtifactGone(f"Artifact {artifact.name} was changed on disk; do not trust it, measure again.")
        return data

    def _keep(self, run_id: str, artifacts: Sequence[ArtifactInput]) -> list[ArtifactRecord]:
        """Write the files, before the transaction that lists them: a crash in between leaves only a file too many."""
        if not artifacts:
            return []
        row = self._row(
            "SELECT ifnull(sum(size_bytes), 0) AS kept FROM artifacts WHERE run_id = ? AND path NOT NULL", run_id
        )
        kept = int(row["kept"]) if row else 0
        records: list[ArtifactRecord] = []
        for artifact in artifacts:
            digest = hashlib.sha256(artifact.data).hexdigest()
            path = Path(f"{self.path.name}.artifacts", digest[:2], digest)
            fits = kept + len(artifact.data) <= RUN_ARTIFACT_LIMIT_BYTES
            if fits:
                kept += len(artifact.data)
                _write_once(self.path.parent / path, artifact.data)
            records.append(ArtifactRecord(
                artifact_id=0, result_id=0, run_id=run_id, name=artifact.name, media_type=artifact.media_type,
                artifact_sha256=digest, size_bytes=len(artifact.data), path=path.as_posix() if fits else None,
            ))  # fmt: skip
        return records

    def _list(self, result_id: int, kept: Sequence[ArtifactRecord]) -> None:
        with self.transaction() as connection:
            for record in kept:
                columns = record.model_dump(exclude={"artifact_id", "result_id"})
                insert(connection, "artifacts", {
                    "result_id": result_id, **columns, "created_utc": self._clock.utc(),
                })  # fmt: skip


def state_of(file: Path, digest: str) -> FileState:
    """Whether a file beside the book is what was written there, by its SHA-256."""
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for
            return "unreadable"
        with file.open("rb") as stream:
            return "as_written" if hashlib.file_digest(stream, "sha256").hexdigest() == digest else "changed"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except (OSError, ValueError):  # a forged path may be no path at all
        return "unreadable"


def _write_once(file: Path, data: bytes) -> None:
    if file.exists():
        return
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as stream:
            try:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
                os.replace(stream.name, file)
            except OSError:
                os.unlink(stream.name)
                raise
    except OSError as error:
        raise BookDiskFull(
            f"An artifact of {len(data):,} bytes cannot be written beside the book ({error.strerror}); free some space."
        ) from error

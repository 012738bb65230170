"""Which candidates of a run are built alike: structure read from their sources, and near-duplicates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import CandidateId, Rung, RunId
from kernelgate.budget.records import CandidateRecord
from kernelgate.server.ledger_thread import LedgerThread
from kernelgate.tasks.source_shape import Shape, shape_of
from kernelgate.tools.compile import CompileReport
from kernelgate.tools.kit.facts import Kernel
from kernelgate.tools.kit.parents import Structure

KEPT: Final = 5_000
"""Shapes kept in memory, about 500 bytes each: several runs' worth."""


@dataclass(eq=False)
class Shapes:
    """The shapes of sources that were looked at; reading one takes milliseconds, so each is read once."""

    _of_source: dict[str, Shape] = field(default_factory=dict[str, Shape])

    async def of_run(self, book: LedgerThread, run_id: RunId) -> dict[CandidateId, Shape]:
        """The shapes of a run's candidates, oldest first."""
        records = await book.do(lambda ledger: ledger.candidates(run_id, order="oldest", limit=KEPT))
        unknown = [record.candidate_id for record in records if record.source_sha256 not in self._of_source]

        def reading(ledger: Ledger) -> list[CandidateRecord]:
            return [ledger.candidate(candidate_id) for candidate_id in unknown]

        for record in await book.do(reading) if unknown else ():
            self._of_source[record.source_sha256] = await anyio.to_thread.run_sync(shape_of, record.files)
        found = {record.candidate_id: self._of_source[record.source_sha256] for record in records}
        for old in list(self._of_source)[: max(0, len(self._of_source) - KEPT)]:
            del self._of_source[old]
        return found


def near_duplicates(shapes: Mapping[CandidateId, Shape]) -> dict[CandidateId, CandidateId]:
    """Candidate → the first one with the same code up to comments, layout and local names. `shapes`: oldest first."""
    first: dict[str, CandidateId] = {}
    found: dict[CandidateId, CandidateId] = {}
    for candidate_id, shape in shapes.items():
        if shape.skeleton and first.setdefault(shape.skeleton, candidate_id) != candidate_id:
            found[candidate_id] = first[shape.skeleton]
    return found


async def near_duplicate(shapes: Shapes, book: LedgerThread, candidate: CandidateRecord) -> CandidateId | None:
    """The candidate of the run that had the same code before, if there is one. Nothing is taken over from it."""
    return near_duplicates(await shapes.of_run(book, candidate.run_id)).get(candidate.candidate_id)


def is_repeated(ledger: Ledger, candidate: CandidateRecord) -> bool:
    """Whether this very source was submitted again: the book keeps the note that came with it, even an empty one."""
    again = "SELECT 1 FROM events WHERE run_id = ? AND candidate_id = ? AND kind = 'note' AND rung IS NULL LIMIT 1"
    return bool(ledger.query(again, candidate.run_id, candidate.candidate_id))


async def structures(shapes: Shapes, book: LedgerThread, run_id: RunId) -> dict[CandidateId, Structure]:
    """The structure of each candidate of a run: from its source, and its kernels from its build where it tells them."""
    found = await shapes.of_run(book, run_id)
    twins = near_duplicates(found)
    built = await book.do(lambda ledger: kernels_built(ledger, run_id))
    return {
        candidate_id: Structure(
            language=shape.language, kernels=built.get(candidate_id) or shape.kernels, features=shape.features,
            tiles=shape.tiles, near_duplicate_of=twins.get(candidate_id),
        )
        for candidate_id, shape in found.items()
    }  # fmt: skip


def kernels_built(ledger: Ledger, run_id: RunId) -> dict[CandidateId, int]:
    """Candidate → kernels of different names in its latest build; configurations of one count once."""
    rows = ledger.query(
        """SELECT r.candidate_id, (SELECT count(DISTINCT json_extract(k.value, '$.kernel.name'))
          FROM json_each(r.report_json, '$.kernels') k) AS kernels, max(r.event_seq) AS event_seq
        FROM results r WHERE r.run_id = ? AND r.rung = ? GROUP BY r.candidate_id""",
        run_id,
        Rung.compile.value,
    )
    return {row["candidate_id"]: row["kernels"] for row in rows}


def kernels_of(ledger: Ledger, candidate_id: CandidateId) -> tuple[Kernel, ...]:
    """The kernels of a candidate's latest build, as they were read from their binaries."""
    rows = ledger.query(
        "SELECT report_json FROM results WHERE candidate_id = ? AND rung = ? ORDER BY event_seq DESC LIMIT 1",
        candidate_id,
        Rung.compile.value,
    )
    if not rows:
        return ()
    report = CompileReport.model_validate_json(rows[0]["report_json"])
    return tuple(described.kernel for described in report.kernels)

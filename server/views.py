"""Candidates, results and texts of the book in the form in which agents and the command line are shown them."""

from pydantic import JsonValue

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import LADDER, Rung
from kernelgate.budget.records import ArtifactRecord, CandidateRecord, ResultRecord, RunRecord
from kernelgate.tasks.model import sha256_hex
from kernelgate.tools.kit.book import ArtifactRow, CandidateRow, ResultView


def row_of(record: CandidateRecord, results: tuple[ResultRecord, ...], run: RunRecord, spent_s: float) -> CandidateRow:
    """One line: the furthest rung, the ratio of the dearest timing in the run's environment, and what was charged."""
    here = [r for r in results if r.environment_id == run.environment_id or r.rung is Rung.compile]
    latest = {result.rung: result for result in here}
    reached = [rung for rung in LADDER if rung in latest]
    furthest = latest[reached[-1]] if reached else None
    timed = latest.get(Rung.precise) or latest.get(Rung.quick)
    timed = timed if timed is not None and timed.ratio is not None else latest.get(Rung.quick)
    return CandidateRow(
        candidate_id=record.candidate_id,
        parent_id=record.parent_id,
        note=record.note,
        language=record.language,
        furthest=furthest.rung.value if furthest else "",
        verdict=furthest.verdict.value if furthest else "",
        ratio=timed.ratio if timed else None,
        low=timed.ratio_low if timed else None,
        high=timed.ratio_high if timed else None,
        ratio_rung=timed.rung.value if timed and timed.ratio is not None else "",
        spent_s=spent_s,
    )


def notes_of(ledger: Ledger, candidate_id: str) -> tuple[str, ...]:
    """The notes that came with the same source again, oldest first."""
    rows = ledger.query(
        "SELECT reason FROM events WHERE candidate_id = ? AND kind = 'note' AND rung IS NULL ORDER BY seq", candidate_id
    )
    return tuple(str(row["reason"]) for row in rows)


def texts_of(record: CandidateRecord, artifacts: tuple[ArtifactRecord, ...]) -> tuple[ArtifactRow, ...]:
    """The long texts of a candidate: its sources, then the latest artifact of each name."""
    sources = [
        ArtifactRow(name=name, bytes=len(text.encode()), sha256=sha256_hex(text))
        for name, text in sorted(record.files.items())
    ]
    latest = {artifact.name: artifact for artifact in artifacts}
    kept = [ArtifactRow(name=a.name, bytes=a.size_bytes, sha256=a.artifact_sha256) for a in latest.values()]
    return (*sources, *kept)


def result_view(result: ResultRecord) -> ResultView:
    """A result as the agent may see it."""
    report: dict[str, JsonValue] = {k: v for k, v in result.report.items() if k not in ("verdict", "code")}
    return ResultView(
        rung=result.rung.value,
        verdict=result.verdict.value,
        code=result.code or "",
        report=report,
        charged_s=result.device_s,
        replayed=result.replay_of is not None,
        created_utc=result.created_utc,
    )

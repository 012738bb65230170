"""`kernelgate runs`, `best` and `audit`: reading the book from the command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue
from rich.console import Console

from kernelgate.budget import audit, report
from kernelgate.budget.errors import BookBusy, BookDiskFull, BookNotFound, BookReadOnly
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Rung, Verdict
from kernelgate.budget.records import Head, ResultRecord, RunRecord
from kernelgate.server import comparisons
from kernelgate.server.settings import Settings
from kernelgate.server.tables import candidates_table, funnel_table, leaderboard_table, runs_table, savings_sentence
from kernelgate.server.trouble import Trouble, guarded, say
from kernelgate.server.views import row_of
from kernelgate.tasks.model import ENTRY_FILE


def _book(path: Path) -> Ledger:
    if not path.exists():
        raise BookNotFound(f"there is no ledger at {path}: name its folder with --data, or start a run first")
    return Ledger.open(path)


def _book_to_read(path: Path) -> Ledger:
    """The book, also where it cannot be written: read-only, on a full disk, or locked by another process."""
    try:
        return _book(path)
    except (BookReadOnly, BookDiskFull, BookBusy):
        return Ledger.reading(path)


def show_runs(settings: Settings, run_id: str | None, *, close: bool) -> int:
    """List the runs; of one, its leaderboard and funnel; or close it."""

    def showing() -> int:
        console = Console(soft_wrap=True, highlight=False)
        with (_book if close else _book_to_read)(settings.ledger) as ledger:
            if run_id is None:
                console.print(runs_table(ledger.runs()))
                return 0
            run = ledger.run(run_id)
            if close:
                ledger.close_run(run_id, "closed by the user")
                console.print(f"{run_id} is closed: nothing more is admitted.")
                return 0
            console.print(runs_table([run]))
            leaders = report.leaderboard(ledger, run_id)
            console.print(leaderboard_table(leaders))
            if leaders and not any(row.precise_verdict == Verdict.faster for row in leaders):
                console.print("None of them is proven faster than the baseline.")
            incumbent = ledger.incumbent(run_id)
            if incumbent is not None and (
                against := comparisons.against_own_kernel(ledger, run, incumbent.candidate_id)
            ):
                console.print(f"The best, {incumbent.candidate_id}, is {comparisons.with_caution(against)}.")
            records = ledger.candidates(run_id, order="oldest", limit=1000)
            spent_s = report.spent_per_candidate(ledger, run_id)
            console.print(
                candidates_table(
                    row_of(record, ledger.results(record.candidate_id), run, spent_s.get(record.candidate_id, 0.0))
                    for record in records
                )
            )
            console.print(funnel_table(report.funnel(ledger, run_id)))
            console.print(savings_sentence(report.savings(ledger, run_id)))
            left, cap = ledger.spendable(run_id), ledger.binding_cap(run_id)
            within = f" under {cap.named}" if cap else ""
            console.print(
                f"Left: {left.device_s_left:.3f} device seconds{within}, {left.calls_left(Rung.precise)} precise calls."
            )
        return 0

    return guarded(showing)


def write_best(settings: Settings, run_id: str, output: Path | None) -> int:
    """Write the incumbent of a run; 1 if it has none."""

    def writing() -> int:
        with _book_to_read(settings.ledger) as ledger:
            run = ledger.run(run_id)  # of whatever account: who owns the file owns the book
            incumbent = ledger.incumbent(run_id)
            if incumbent is None:
                say(_why_none(run_id, report.leaderboard(ledger, run_id)))
                return 1
            candidate = ledger.candidate(incumbent.candidate_id)
            result = ledger.latest_result(candidate.candidate_id, Rung.precise, run.environment_id)
            assert result is not None, "an incumbent has a precise result"
            against = comparisons.against_own_kernel(ledger, run, candidate.candidate_id)
            told = [f"it is {comparisons.with_caution(against)}"] if against else []
            told += filter(None, [comparisons.times_measured(ledger, candidate.candidate_id, run.environment_id)])
            header = evidence(run, result, ledger.environment(run.environment_id), ledger.head(), told)
        if result.verdict is not Verdict.faster:
            say(f"{candidate.candidate_id} is the best of {run_id}, but it is {result.verdict}, not faster")
        text = header + candidate.files[ENTRY_FILE]
        if output is None:
            print(text, end="")  # noqa: T201 -- the command's output is the kernel
            return 0
        try:
            output.write_text(text, encoding="utf-8")
            for name, content in candidate.files.items():
                if name != ENTRY_FILE:
                    (output.parent / name).write_text(content, encoding="utf-8")
        except OSError as error:
            return say(f"{output} cannot be written ({error.strerror}); name a file in a folder that exists with -o")
        Console(soft_wrap=True, markup=False).print(f"{candidate.candidate_id} of {run_id} is in {output}.")
        return 0

    return guarded(writing)


def _why_none(run_id: str, leaders: Sequence[report.LeaderboardRow]) -> str:
    """Why a run has no best candidate: nothing was timed precisely, or nothing that was timed so is settled."""
    tried = [row for row in leaders if row.precise_verdict is not None]
    if not tried:
        return f"{run_id} has no precisely timed candidate yet; time one with precise_time"
    first = tried[0]
    ratio = "" if first.precise_ratio is None else f" at {first.precise_ratio:.2f}x"
    return (
        f"{run_id} has no settled winner: {len(tried)} of its candidates were timed precisely, and none was proven "
        f"faster, the same or slower; the first of them is {first.candidate_id}{ratio}, {first.precise_verdict}; time "
        "it again on a quiet host"
    )


def evidence(
    run: RunRecord, result: ResultRecord, environment: dict[str, object], head: Head, told: Sequence[str] = ()
) -> str:
    """Comment lines: what was measured, where, and the head hash that anchors it; `told`: what else is to be known."""
    where = ", ".join(f"{name} {value}" for name, value in sorted(environment.items()) if value not in ("", None))
    floor = float(str(result.report.get("floor", 0.0)))
    lines = [
        f"{result.candidate_id} of {run.run_id}, task {run.task_name} (digest {run.task_digest[:12]})",
        f"{result.verdict}: {result.ratio:.4f}x as fast as the baseline",
        f"95 % interval {result.ratio_low:.4f}x to {result.ratio_high:.4f}x, noise floor {floor:.2%}",
        *told,
        "memory that either side frees stays with its process while it is timed: first touches of pages do not count",
        f"worst workload: {worst_workload(result.report)}",
        f"measured {result.created_utc} in environment {run.environment_id}: {where}",
        f"source sha256 {result.source_sha256}",
        f"ledger head {head}",
    ]
    return "".join(f"# {line}\n" for line in lines) + "\n"


def worst_workload(report: Mapping[str, JsonValue]) -> str:
    """The workload with the lowest ratio, and that ratio: `64x256 at 1.0512x`."""
    name = str(report.get("worst_workload", ""))
    rows = report.get("workloads")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and row.get("workload") == name:
            return f"{name} at {float(str(row.get('ratio'))):.4f}x"
    return name


def audit_book(path: Path, head: str | None, *, as_json: bool, run_id: str | None = None) -> int:
    """Verify a book, or of its runs one only; 1 if something is wrong."""

    def auditing() -> int:
        if not path.exists():
            raise BookNotFound(
                f"there is no ledger at {path}: name its file, or its folder with --data, or start a run first"
            )
        try:
            anchor = Head.parse(head) if head else None
        except ValueError:
            raise Trouble("--head takes seq:hash with all 64 digits of the hash, as the replies carry it") from None
        found = audit.audit(path, run_id, anchor)
        if as_json:
            print(found.model_dump_json(indent=2))  # noqa: T201 -- the command's output is JSON
        else:
            Console(soft_wrap=True, highlight=False, markup=False).print(audit.rendered(found))
        return 0 if found.ok else 1

    return guarded(auditing, as_json=as_json)

"""The report of `kernelgate bench ladder`: what was asked and answered, what follows from it, and where a rule lost."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from kernelgate.budget.ladder.compare import Compared, Total, compare, total
from kernelgate.budget.ladder.model import FLAT, Played, Stream, Truth
from kernelgate.budget.ladder.play import play
from kernelgate.budget.model import Rung
from kernelgate.budget.rules import find_rules
from kernelgate.server.bench.live import Asked, Pass
from kernelgate.server.bench.record import lasting_faults, played_of, truth_of
from kernelgate.server.installed import package_version
from kernelgate.server.trouble import Trouble
from kernelgate.tasks.model import Frozen

TARGET_REGRET_PCT: Final = 0.5
"""A best that is slower than the truth's by more than this is told as a loss."""
TOLD_WAIT: Final = 0.05
"""A larger share of the wall clock that went by waiting for the device is told: wall times are not the rule's then."""
MARKED: Final = (
    "Behind each source stands a line `# <rule>`, so that no pass is answered from the book of another. Within a pass "
    "a source that comes twice is answered from the book, free. Before the passes the reference climbed once as a "
    "candidate of a run of its own (warm_up), so that neither pass pays for the worker's start, calibration and "
    "qualification."
)


class WarmUp(Frozen):
    """What went before the passes: a server, a worker, a qualified task, a calibrated device."""

    device_s: float
    wall_s: float


class StreamReport(Frozen):
    """One stream: its passes call by call, and each rule beside the truth."""

    stream: str
    task: str
    candidates: int
    device: str
    unit: str
    """What is charged: `gpu_s` or `cpu_s`."""
    order: tuple[str, ...]
    """The passes as they were drawn, the first one first."""
    ledger: str
    """Where the evidence is, from the folder that `--data` names; or that it was not kept."""
    warm_up: WarmUp | None
    passes: tuple[Pass, ...]
    truth: Truth | None
    """The flat pass; None where it did not begin."""
    played: tuple[Played, ...]
    """Live first; then replayed on the truth."""
    compared: tuple[Compared, ...]
    """The same, where there is a truth."""
    why_partial: tuple[str, ...] = ()
    """Why not all of it could be played; empty where it was."""
    notes: tuple[str, ...] = ()
    """Faults of single candidates, and rungs that are not possible on this device."""


class Summed(Frozen):
    """A rule over all streams."""

    live: bool
    """Measured through servers; else replayed on the truths."""
    total: Total


class LadderReport(Frozen):
    """All streams of one command."""

    report: str = "kernelgate bench ladder"
    date_utc: str
    kernelgate: str
    seed: int
    rules: tuple[str, ...]
    live: tuple[str, ...]
    """The rules that were run beside flat, which always is."""
    budget_device_s: float | None
    """Of each pass; None where it was enough for the whole stream."""
    how: str = MARKED
    partial: bool
    streams: tuple[StreamReport, ...]
    totals: tuple[Summed, ...]
    losses: tuple[str, ...]
    """Each a sentence: where a rule spent more than flat, or found less."""


def stream_report(
    stream: Stream, passes: Sequence[Pass], order: Sequence[str], parameters: Mapping[str, Mapping[str, float]], *,
    ledger: str, warm_up: WarmUp | None, why: Sequence[str] = (),
) -> StreamReport:  # fmt: skip
    """What follows from the passes of a stream.

    Args:
        stream: the candidates.
        passes: as far as they came, each of another rule.
        order: the rules of the passes as they were drawn.
        parameters: rule → its parameters, of the rules that are replayed on the truth.
        ledger: where the evidence is.
        warm_up: what went before.
        why: reasons beside those of the passes why not all was played.
    """
    flat = next((each for each in passes if each.rule == FLAT), None)
    truth = truth_of(stream, flat) if flat is not None else None
    played = [played_of(stream, each, truth) for each in passes]
    if truth is not None:
        rules = find_rules()
        played += [play(truth, rules[name], given) for name, given in parameters.items()]
    missing = [rule for rule in order if rule not in {each.rule for each in passes}]
    return StreamReport(
        stream=stream.name, task=stream.task, candidates=len(stream.lines),
        device=passes[0].device if passes else "", unit=passes[0].unit if passes else "", order=tuple(order),
        ledger=ledger, warm_up=warm_up, passes=tuple(passes), truth=truth, played=tuple(played),
        compared=tuple(compare(truth, each) for each in played) if truth is not None else (),
        why_partial=(
            *why, *(f"{each.rule}: {each.ended}" for each in passes if each.ended),
            *(_fault(each, asked) for each in passes if not each.ended for asked in lasting_faults(each)),
            *(f"{rule}: it was not begun" for rule in missing),
        ),
        notes=tuple(_notes(passes, truth)),
    )  # fmt: skip


def _notes(passes: Iterable[Pass], truth: Truth | None) -> Iterable[str]:
    if truth is not None and not any(each.rung is Rung.precise for tried in truth.tried for each in tried.outcomes):
        yield "no candidate came to a precise timing in the flat pass: there was nothing to find"
    for each in passes:
        waited_s, wall_s = sum(one.queue_s for one in each.asked), sum(one.wall_s for one in each.asked)
        if waited_s > TOLD_WAIT * wall_s:
            yield f"{each.rule}: {waited_s:.1f} of {wall_s:.1f} s went by waiting for the device, which others used"
        told = () if each.ended else lasting_faults(each)
        for asked in each.asked:
            if asked.outcome is None and asked.refused is None and asked not in told:
                yield _fault(each, asked)
        beyond = [asked.id for asked in each.asked if asked.refused not in (None, "rule", "purse", "deadline")]
        if beyond:
            first = next(asked for asked in each.asked if asked.id == beyond[0] and asked.refused is not None)
            many = "one candidate" if len(beyond) == 1 else f"{len(beyond)} candidates"
            yield f"{each.rule}: {many} could not go on, {first.id} at {first.rung}: {first.said}"


def _fault(seen: Pass, asked: Asked) -> str:
    return f"{seen.rule}: {asked.id} met a fault at {asked.rung}: {asked.said}"


def ladder_report(
    streams: Sequence[StreamReport], *, seed: int, rules: Sequence[str], live: Sequence[str],
    budget_device_s: float | None, expected: int,
) -> LadderReport:  # fmt: skip
    """The streams together. `expected`: how many there were to be; fewer is partial."""
    rows = [row for each in streams for row in each.compared]
    kinds = dict.fromkeys((row.rule, row.live) for row in rows)
    return LadderReport(
        date_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), kernelgate=package_version("kernelgate"), seed=seed,
        rules=tuple(rules), live=tuple(live), budget_device_s=budget_device_s,
        partial=len(streams) < expected or any(each.why_partial for each in streams), streams=tuple(streams),
        totals=tuple(
            Summed(live=is_live, total=total(row for row in rows if (row.rule, row.live) == (rule, is_live)))
            for rule, is_live in kinds
        ),
        losses=tuple(sentence for row in rows if row.rule != FLAT for sentence in losses_of(row)),
    )  # fmt: skip


def named(rule: str, *, live: bool) -> str:
    """A rule as tables and plots tell it."""
    return f"{rule}, live" if live else f"{rule}, replayed"


def losses_of(row: Compared) -> Iterable[str]:
    """Where a rule was no better than flat, each as a sentence."""
    who = f"{row.stream}: {named(row.rule, live=row.live)}"
    saved = row.flat_device_s_total - row.device_s_total
    if saved < 0 and row.gpu_s_ratio_flat is not None:  # else the two did not meet the same candidates
        yield f"{who}, spent {-saved:.3f} device seconds more than flat"
    if row.regret_pct is not None and row.regret_pct > TARGET_REGRET_PCT:
        found = f"its best, {row.best}, is" if row.best is not None else "it found none, and the baseline is"
        yield f"{who}, {found} {row.regret_pct:.2f} % slower than {row.flat_best}, the best of the flat pass"
    if row.false_drops:
        worse = f" ({len(row.false_drops_1pct)} by more than 1 %)" if row.false_drops_1pct else ""
        yield f"{who}, refused {', '.join(row.false_drops)}, proven faster than its best by the flat pass{worse}"


def read_report(path: Path) -> LadderReport:
    """A report of `bench ladder`; raises `Trouble` for what is none."""
    try:
        return LadderReport.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Trouble(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValidationError):
        raise Trouble(f"{path} is no report of this `kernelgate bench ladder`: make one with -o") from None

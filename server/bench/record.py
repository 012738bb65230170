"""What live passes come to in the words of the core: the truth about a stream, and what a rule made of it. Pure."""

from collections.abc import Sequence

from kernelgate.budget.ladder.model import Outcome, Played, Point, Stream, Tried, Truth
from kernelgate.budget.model import LADDER, PASSING, History, Rung, Scored
from kernelgate.budget.promotion import incumbent_of
from kernelgate.server.bench.live import Asked, Pass, marked


def truth_of(stream: Stream, flat: Pass) -> Truth:
    """The pass without a gate as the truth; a candidate that it did not reach is in it, without outcomes."""
    outcomes: dict[str, list[Outcome]] = {line.id: [] for line in stream.lines}
    for each in flat.asked:
        if each.outcome is not None:
            outcomes[each.id].append(each.outcome)
    firsts: dict[str, str] = {}
    twins = {line.id: firsts.setdefault(marked(line.source, ""), line.id) for line in stream.lines}
    tried = tuple(
        Tried(id=name, outcomes=tuple(found), twin_of=twins[name] if twins[name] != name else None)
        for name, found in outcomes.items()
    )
    complete = not flat.ended and not lasting_faults(flat)
    return Truth(stream=stream.name, task=stream.task, device=flat.device, tried=tried, complete=complete)


def lasting_faults(seen: Pass) -> tuple[Asked, ...]:
    """Faults after which a candidate was not asked about again: what it would have cost is not known."""
    last = {each.id: each for each in seen.asked}
    return tuple(each for each in last.values() if each.outcome is None and each.refused is None)


def played_of(stream: Stream, seen: Pass, truth: Truth | None) -> Played:
    """A live pass; what its best candidates are worth is read from the truth, not from the pass."""
    rungs = [str(rung) for rung in LADDER]
    calls, device_s = dict.fromkeys(rungs, 0), dict.fromkeys(rungs, 0.0)
    for each in seen.asked:
        if each.outcome is not None:
            calls[each.rung] += 1
            device_s[each.rung] = round(device_s[each.rung] + each.outcome.device_s, 9)
    doors = {each.id: each for each in seen.asked if each.rung is Rung.precise}  # the last answer at the door counts
    incumbents = _incumbents(stream, seen.asked)
    ended = bool(seen.ended or lasting_faults(seen))  # what was not measured for a fault must not look saved
    return Played(
        stream=stream.name, rule=seen.rule, parameters=seen.parameters, live=True, calls=calls, device_s=device_s,
        wall_s=round(sum(each.wall_s for each in seen.asked), 9), best=incumbents[-1].id if incumbents else None,
        admitted=tuple(each.id for each in seen.asked if each.rung is Rung.precise and each.outcome is not None),
        refused=tuple(name for name, each in doors.items() if each.refused == "rule"),
        curve=_curve(seen.asked, incumbents, truth),
        partial=ended or (truth is not None and not truth.complete),
        ended=ended,
    )  # fmt: skip


def _incumbents(stream: Stream, asked: Sequence[Asked]) -> list[Asked]:
    """The precise timings that each made its candidate the best so far."""
    places = {line.id: f"c{number}" for number, line in enumerate(stream.lines, 1)}
    timed: list[Scored] = []
    found: list[Asked] = []
    for seq, each in enumerate(asked, 1):
        outcome = each.outcome
        if each.replayed:  # its twin led, or did not
            continue
        if each.rung is not Rung.precise or outcome is None or outcome.verdict not in PASSING[Rung.precise]:
            continue
        if outcome.ratio is None or outcome.low is None or outcome.high is None:
            continue
        own = Scored(
            candidate_id=places[each.id], ratio=outcome.ratio, low=outcome.low, high=outcome.high,
            verdict=outcome.verdict, device_s=outcome.device_s, seq=seq,
        )  # fmt: skip
        timed.append(own)
        if incumbent_of(History(precise=tuple(timed))) == own:
            found.append(each)
    return found


def _curve(asked: Sequence[Asked], incumbents: Sequence[Asked], truth: Truth | None) -> tuple[Point, ...]:
    worth = {
        tried.id: outcome.ratio
        for tried in (truth.tried if truth is not None else ())
        for outcome in tried.outcomes
        if outcome.rung is Rung.precise and outcome.ratio is not None
    }
    found: list[Point] = []
    device_s = wall_s = 0.0
    for each in asked:
        device_s += each.outcome.device_s if each.outcome is not None else 0.0
        wall_s += each.wall_s
        # By identity: the same call may be answered twice alike.
        if any(each is leader for leader in incumbents) and each.id in worth:
            found.append(
                Point(device_s=round(device_s, 9), wall_s=round(wall_s, 9), id=each.id, ratio=worth[each.id])
            )  # fmt: skip
    return tuple(found)

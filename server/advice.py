"""What makes sense next: each step with its price, whether it is allowed, and if not, what is missing. Pure."""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kernelgate.budget.model import (
    PASSING,
    RUNG_BELOW,
    TOOL_OF_RUNG,
    Decision,
    History,
    Promotion,
    Purse,
    Rung,
    Verdict,
)
from kernelgate.budget.promotion import order_of
from kernelgate.budget.purse import CapLeft, under
from kernelgate.server.prices import LEAST_HOLD_S
from kernelgate.tools.kit.envelope import NextStep

INTERPRETED: Final = "interpreter time says nothing about a GPU: run this candidate on a GPU host"
RUNG_WORD: Final = re.compile(rf"\b({'|'.join(rung.value for rung in Rung)})\b")


class Bearings(NamedTuple):
    """What the next step of a run depends on."""

    purse: Purse
    prices_s: Mapping[Rung, float]
    """Expected device seconds."""
    leasts_s: Mapping[Rung, float]
    """With less device seconds left than this a call is refused."""
    leader: str | None
    """The best candidate at quick that the rule would admit to precise and that is not timed there yet."""
    holder: str | None
    """The job whose hold on the purse is the oldest that is open; None where nothing is held."""
    cap: CapLeft | None = None
    """That of the account or of all accounts, where it leaves the run less than its own purse would."""


class Standing(NamedTuple):
    """What is known of a candidate when advice is due."""

    candidate_id: str
    language: str
    verdicts: Mapping[Rung, Verdict]
    """Latest verdict per rung in this environment."""
    promotion: Decision | None
    """What the rule would say now of entering precise; None before quick."""


def leader_of(
    history: History,
    decide: Callable[[History, Promotion, Mapping[str, float]], Decision],
    parameters: Mapping[str, float],
) -> str | None:
    """See `Bearings.leader`. `decide`: the run's rule."""
    timed = {scored.candidate_id for scored in history.precise}
    waiting = [scored for scored in history.quick if scored.candidate_id not in timed]
    if not waiting or history.precise_calls_left <= 0:
        return None
    best = min(waiting, key=order_of).candidate_id
    return best if decide(history, Promotion(candidate_id=best, rung=Rung.precise), parameters).admit else None


def not_here(rung: Rung, language: str, device_kind: str) -> str:
    """Why a rung cannot be climbed on this kind of device; empty if it can."""
    if device_kind != "cpu" or language == "torch" or rung is Rung.compile:
        return ""
    if language == "cuda":
        return "CUDA sources need a GPU to be checked and timed"
    return INTERPRETED if rung in (Rung.quick, Rung.precise, Rung.profile) else ""


def next_steps(bearings: Bearings, run_id: str, device_kind: str, standing: Standing | None) -> tuple[NextStep, ...]:
    """At most four, the most useful first."""
    purse, leader, holder = bearings.purse, bearings.leader, bearings.holder
    steps = _waiting_steps(purse, holder)
    if standing is not None and all(verdict in PASSING[rung] for rung, verdict in standing.verdicts.items()):
        steps += _climbing_steps(bearings, device_kind, standing)
    if leader is not None and (standing is None or leader != standing.candidate_id):
        price_s = bearings.prices_s.get(Rung.precise, 0.0)
        why = f"{leader} ranks best at quick_time and is not timed precisely yet"
        missing = _unpaid(Rung.precise, bearings)
        steps.append(
            NextStep(
                tool="precise_time", arguments={"candidate_id": leader}, why=why, price_device_s=price_s,
                allowed=not missing, missing=missing,
            )
        )  # fmt: skip
    steps.append(_compile_step(purse, run_id, standing))
    # What is allowed comes first; sorted is stable, so the order of usefulness stays.
    return tuple(sorted(steps, key=lambda step: not step.allowed)[:4])


def _waiting_steps(purse: Purse, holder: str | None) -> list[NextStep]:
    """Where what is lacking is only held by a call under way, its end is worth waiting for."""
    lacking = [
        held_back(held, unit)
        for left, least, held, unit in (
            (purse.device_s_left, LEAST_HOLD_S, purse.open.device_s, "device seconds"),
            (purse.deadline_s_left, 0.0, purse.open.work_s, "s of work"),
        )
        if left <= least and held > 0
    ]
    if holder is None or not lacking:
        return []
    return [NextStep(tool="job", arguments={"job_id": holder}, why=f"wait for it: {lacking[0]}")]


def _compile_step(purse: Purse, run_id: str, standing: Standing | None) -> NextStep:
    arguments = {"run_id": run_id}
    why = "submit a candidate"
    if standing is not None:
        failed = any(verdict not in PASSING[rung] for rung, verdict in standing.verdicts.items())
        arguments["parent_id"] = standing.candidate_id
        why = "mend it: submit a corrected candidate" if failed else "submit the next idea as its child, with a note"
    left = purse.calls_left(Rung.compile)
    return NextStep(
        tool="compile", arguments=arguments, why=why, allowed=left > 0,
        missing="" if left > 0 else "no compile calls are left in this run",
    )  # fmt: skip


def _climbing_steps(bearings: Bearings, device_kind: str, standing: Standing) -> list[NextStep]:
    reasons = {
        Rung.check: "is it right?",
        Rung.quick: "could it be fast?",
        Rung.precise: "how fast is it, for certain?",
        Rung.profile: "what holds it back?",
    }
    steps: list[NextStep] = []
    for rung, why in reasons.items():
        below = RUNG_BELOW[rung]
        passed_below = below is None or standing.verdicts.get(below) in PASSING[below]
        if rung in standing.verdicts or not passed_below:
            continue
        missing = blocked(rung, bearings, device_kind, standing)
        steps.append(
            NextStep(
                tool=TOOL_OF_RUNG[rung],
                arguments={"candidate_id": standing.candidate_id},
                why=why,
                price_device_s=bearings.prices_s.get(rung, 0.0),
                allowed=not missing,
                missing=missing,
            )
        )
    return steps


def blocked(rung: Rung, bearings: Bearings, device_kind: str, standing: Standing) -> str:
    """What stands in the way of a rung; empty if nothing does."""
    if absent := not_here(rung, standing.language, device_kind):
        return absent
    if unpaid := _unpaid(rung, bearings):
        return unpaid
    if rung is Rung.precise and standing.promotion is not None and not standing.promotion.admit:
        # The rule names what it would take in a sentence of its own: "A rank 1 or better of 4."
        needed = in_tools(standing.promotion.missing)
        return f"it needs {needed[:1].lower()}{needed[1:]}" if needed else in_tools(standing.promotion.why)
    return ""


def _unpaid(rung: Rung, bearings: Bearings) -> str:
    """What the purse lacks for a call; empty if it can be paid."""
    purse, tool, least_s = bearings.purse, TOOL_OF_RUNG[rung], bearings.leasts_s.get(rung, 0.0)
    if purse.calls_left(rung) <= 0:
        return f"no {tool} calls are left in this run"
    if purse.device_s_left <= 0:
        waiting = _until_then(purse.open.device_s, "device seconds")
        return f"no device seconds are left to this run{under(bearings.cap)}{waiting}"
    if purse.device_s_left < least_s:
        waiting = _until_then(purse.open.device_s, "device seconds")
        left = f"{purse.device_s_left:.3f} device seconds are left{under(bearings.cap)}"
        return f"{left}, and {tool} needs {least_s:.3f}{waiting}"
    if purse.deadline_s_left <= 0:
        return f"the run's time is up{_until_then(purse.open.work_s, 's of work')}"
    return ""


def held_back(held: float, unit: str) -> str:
    """That something of the purse is only held, for a sentence."""
    return f"{held:.2f} {unit} are held by calls under way, and what those do not use comes back"


def _until_then(held: float, unit: str) -> str:
    return f": {held_back(held, unit)}; wait for them with job, then ask again" if held > 0 else ""


def in_tools(text: str) -> str:
    """A sentence of the book in the words of its reader: the book speaks of rungs, an agent knows tools."""
    return RUNG_WORD.sub(lambda found: TOOL_OF_RUNG[Rung(found[0])], text)


def cannot_afford(bearings: Bearings) -> str:
    """Stop advice when not even a check is affordable."""
    purse, cheapest = bearings.purse, bearings.prices_s.get(Rung.check, 0.0)
    left_s = purse.device_s_left + purse.open.device_s  # of what is held, something may come back
    if left_s <= 0 or left_s < cheapest / 2:
        spent = f"Too few device seconds are left to this run{under(bearings.cap)}"
        return f"{spent}: stop, and take the best candidate with list_candidates."
    if purse.deadline_s_left <= 0:
        return "The run's time is up: stop, and take the best candidate with list_candidates."
    return ""

"""What is measured of a device before its numbers are believed: its noise on a task, its ceilings, its least readings.

Measured once in an environment, on the house, with the first precise timing of a task; again where the clocks of the
device are others than they were, or where the moment was loud.
"""

import logging
from typing import Final

from pydantic import JsonValue

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount
from kernelgate.budget.records import CalibrationRecord, Json
from kernelgate.server.calibrated import AA_KIND, DEVICE_KIND
from kernelgate.server.environment import device_amount
from kernelgate.server.measure import against_itself
from kernelgate.server.services import Door, Services
from kernelgate.server.work import Job
from kernelgate.tasks.model import DeviceKind, canonical_json
from kernelgate.tools.kit.pairing import margin_of
from kernelgate.tools.kit.statistics import Bounds
from kernelgate.tools.kit.timing_report import TimingFacts
from kernelgate.tools.precise_time import LEAST_FLOOR, LIMIT_S, PrecisePlan
from kernelgate.tools.precise_time import noise_floor as floor_of

log = logging.getLogger("kernelgate")

QUIET_FLOOR: Final = 0.03
"""A noise floor above this is measured again, at most `MOST_CALIBRATIONS` times in all."""
MOST_CALIBRATIONS: Final = 3
LOUD_FLOOR: Final = 1.0
"""Where the floor cannot be measured, only a doubling counts."""
CALIBRATE_LOOKS: Final = (24,)
"""Pairs of the baseline against itself: at 24 the 95 % interval is the 7th to the 18th value."""
CLOCKS: Final = ("sm_clock_mhz", "memory_clock_mhz")
CLOCK_CHANGE: Final = 0.20
"""A clock that moved by more belongs to another setting of the device; under load it wanders by less."""


async def noise_floor(services: Services, job: Job, door: Door) -> float:
    """Largest gap that this device makes of the task's baseline against itself; measured once per environment."""
    async with services.workshop.alone("noise floor", door.run.task_digest, door.environment.environment_id):
        return await _noise_floor(services, job, door)


async def _noise_floor(services: Services, job: Job, door: Door) -> float:
    here = door.environment.environment_id
    known, now = await services.ledger.do(
        lambda ledger: (ledger.calibration(here, AA_KIND, door.run.task_digest), ledger.latest_observation(here))
    )
    if known is not None and holds(known.facts, now):
        return _floor(known)
    reply = await against_itself(services, job, door, PrecisePlan(looks=CALIBRATE_LOOKS), LIMIT_S)
    if reply.fault or reply.facts is None:
        log.warning("the noise floor of %s could not be measured: %s", door.task.name, reply.fault or reply.exit.kind)
        return _floor(known) if known is not None else LOUD_FLOOR
    facts = TimingFacts.model_validate_json(canonical_json(reply.facts))
    if any(timing.voided and timing.bounds(0.95) is None for timing in facts.timings):
        # Nothing measured is no quiet: a device that is held back says nothing of one that is not.
        log.warning("the noise floor of %s could not be measured: the device was held back", door.task.name)
        return _floor(known) if known is not None else LOUD_FLOOR
    floor, tries = floor_of(facts), 1
    if known is not None and not moved(known.facts, now):
        # One loud moment must not stay the floor for good: the quietest of a few is what the device can do.
        floor, tries = min(floor, _floor(known)), _tries(known.facts) + 1
    clocks: Json = {name: reply.observation[name] for name in CLOCKS if name in reply.observation}
    of_task: Json = {"floor": floor, "tries": tries, "baselines": gaps(facts), **clocks}
    of_device: Json = {**facts.ceilings.model_dump(mode="json"), **clocks} if facts.ceilings else {}
    paid = device_amount(door.device, reply.lease_s + reply.house_s, calls=0)

    def keeping(ledger: Ledger) -> None:
        with ledger.transaction():
            ledger.record_calibration(door.environment, AA_KIND, of_task, task_digest=door.run.task_digest, paid=paid)
            if of_device:  # of the same call, which is paid above
                ledger.record_calibration(door.environment, DEVICE_KIND, of_device, paid=Amount())

    await services.ledger.do(keeping)
    return floor


def floor_told(known: CalibrationRecord | None, device: DeviceKind) -> float | None:
    """What a gain is held against: what was measured, and at least what two processes of a device differ by."""
    return None if known is None else max(_floor(known), margin_of(device), LEAST_FLOOR)


def holds(kept: Json, now: Json | None) -> bool:
    """Whether a noise floor need not be measured again: quiet or tried often enough, at the clocks of then."""
    enough = float(str(kept["floor"])) <= QUIET_FLOOR or _tries(kept) >= MOST_CALIBRATIONS
    return enough and not moved(kept, now)


def moved(kept: Json, now: Json | None) -> bool:
    """Whether a clock of the device is another than when it was calibrated; unknown clocks have not moved."""
    pairs = [(kept.get(name), (now or {}).get(name)) for name in CLOCKS]
    return any(
        isinstance(then_mhz, int | float)
        and isinstance(now_mhz, int | float)
        and abs(now_mhz - then_mhz) > CLOCK_CHANGE * then_mhz
        for then_mhz, now_mhz in pairs
    )


def gaps(facts: TimingFacts) -> list[JsonValue]:
    """Noise by the length of a call: of each workload that, and half of the 95 % interval of its ratio to itself."""
    found: list[JsonValue] = []
    for timing in facts.timings:
        bounds: Bounds | None = timing.bounds(0.95)
        if bounds is not None:
            half_width = (bounds.high - bounds.low) / 2
            found.append({
                "baseline_us": timing.baseline_us(), "ratio": bounds.median, "half_width": half_width,
                "pairs": len(timing.pairs),
            })  # fmt: skip
    return found


def _floor(known: CalibrationRecord) -> float:
    return float(str(known.facts["floor"]))


def _tries(kept: Json) -> int:
    return int(str(kept.get("tries", 1)))

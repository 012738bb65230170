"""A device is measured before its numbers are believed: when again, and what doctor tells of it."""

import io
import random
from pathlib import Path
from typing import Any

import pytest
from live_server import Live
from rich.console import Console
from synthetic import noisy, timing

from kernelgate.server.calibrated import calibrations_in, told
from kernelgate.server.calibrating import CLOCK_CHANGE, MOST_CALIBRATIONS, QUIET_FLOOR, gaps, holds, moved
from kernelgate.server.doctor import examine, render
from kernelgate.tools.kit.timing_report import TimingFacts

CLOCKS: dict[str, Any] = {"sm_clock_mhz": 1980, "memory_clock_mhz": 3201}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (None, False),
        ({}, False),
        (CLOCKS, False),
        ({"sm_clock_mhz": 1980 * (1 - CLOCK_CHANGE / 2)}, False),
        ({"sm_clock_mhz": 1980 * (1 - CLOCK_CHANGE * 2)}, True),
        ({"memory_clock_mhz": 1600}, True),
    ],
)
def test_a_device_at_other_clocks_is_another_one(now: dict[str, Any] | None, expected: bool) -> None:
    assert moved(CLOCKS, now) is expected


def test_clocks_that_nobody_could_read_have_not_moved() -> None:
    assert not moved({}, CLOCKS)


def test_a_floor_holds_if_it_is_quiet_or_was_tried_often_and_no_clock_moved() -> None:
    quiet, loud = {"floor": QUIET_FLOOR / 2, **CLOCKS}, {"floor": QUIET_FLOOR * 2, "tries": 1, **CLOCKS}
    assert holds(quiet, CLOCKS)
    assert not holds(loud, CLOCKS)
    assert holds({**loud, "tries": MOST_CALIBRATIONS}, CLOCKS)
    assert not holds(quiet, {"sm_clock_mhz": 900})


def test_noise_is_kept_by_the_length_of_a_call() -> None:
    rng = random.Random(3)
    short, long = (timing(noisy(rng, us, 0.01), noisy(rng, us, 0.01), 24) for us in (40.0, 900.0))
    found: list[Any] = gaps(TimingFacts(timings=(short, long)))
    assert [round(each["baseline_us"], -1) for each in found] == [40, 900]
    assert all(0 < each["half_width"] < 0.02 and each["pairs"] == 24 for each in found)


def test_the_first_precise_timing_calibrates_the_device_and_doctor_tells_of_it(live: Live) -> None:
    run_id = live.run()
    live.submit(run_id, "return torch.softmax(x, dim=-1) + 0", up_to="precise_time", wait_s=120)
    environment_id = live.call("get_budget", run_id=run_id)["run"]["environment_id"]
    [found] = [one for one in calibrations_in(live.data_dir / "ledger.db") if one.environment_id == environment_id]
    assert found.ceilings.copy_gb_s > 0
    assert 0 < found.ceilings.empty_us <= found.ceilings.launch_us
    [noise] = [noise for noise in found.noise if noise.task == "softmax"]
    assert len(noise.baselines_us) == len(noise.half_widths) == 3, "of each workload"
    said = " ".join(told(found))
    assert "GB/s" in said
    assert "noise of softmax" in said
    printed = io.StringIO()
    render(examine(live.data_dir, live.data_dir / "ledger.db"), Console(file=printed, width=200))
    assert "noise of softmax" in printed.getvalue()


def test_where_there_is_no_book_nothing_is_told(tmp_path: Path) -> None:
    assert calibrations_in(tmp_path / "ledger.db") == ()

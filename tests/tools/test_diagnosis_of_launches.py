import pytest
from profiles import COPY, SLOW, counted, launch, own, profiled, row

from kernelgate.tools.kit.diagnosis import advice, diagnose
from kernelgate.tools.kit.evidence import Evidence
from kernelgate.tools.kit.findings import Finding

MB = 128.0
BOUND_US = MB * 1e3 / 4280


def first(evidence: Evidence) -> Finding:
    findings = diagnose(evidence).findings
    assert findings, "nothing was found"
    return findings[0]


def test_many_short_kernels_are_launch_bound_and_explain_the_time_of_the_host() -> None:
    seen = diagnose(
        profiled(170, row("a", 80, 25), row("b", 60, 25), megabytes=4, host_us=400, span_us=420, busy_us=140)
    )
    assert seen.bound_class == "launch"
    assert [finding.kind for finding in seen.findings] == ["many_launches"]
    assert "50 kernels" in seen.findings[0].evidence
    assert seen.findings[0].headroom > 1.5
    assert "CUDAGraph" in seen.findings[0].change


def test_a_forward_whose_python_takes_longer_than_the_device_is_host_bound() -> None:
    seen = diagnose(profiled(1.02 * BOUND_US, host_us=900, span_us=31, busy_us=31))
    assert seen.bound_class == "host"
    assert [finding.kind for finding in seen.findings] == ["host_time"]
    assert "900 µs" in seen.findings[0].evidence
    assert seen.findings[0].headroom == pytest.approx(900 / 50), "an ordinary forward has the host work too"


def test_the_time_of_an_ordinary_launch_is_no_fault_of_a_short_kernel() -> None:
    assert diagnose(profiled(3.1, megabytes=1, host_us=35)).findings == ()


def test_a_wait_for_the_device_is_told_before_the_time_of_the_host_that_it_causes() -> None:
    seen = diagnose(profiled(100, row("mine", 30), host_us=110, span_us=98, busy_us=30, waits=2.0))
    assert seen.bound_class == "sync"
    assert seen.findings[0].kind == "sync"
    assert "2x a call" in seen.findings[0].evidence
    assert seen.findings[0].headroom == pytest.approx(110 / 30)
    assert all(finding.kind != "host_time" for finding in seen.findings)


def test_a_wait_that_costs_little_does_not_hide_what_costs_much() -> None:
    waits = {"waits": 1.0, "host_us": 2020.0, "span_us": 2000.0, "busy_us": 1990.0}
    assert first(profiled(2000, counters=counted(SLOW, MB, 8.0, issue=0.005), **waits)).kind == "uncoalesced"


@pytest.mark.parametrize("active", [None, 0.12])
def test_a_grid_smaller_than_the_device_has_too_few_blocks(active: float | None) -> None:
    counters = None if active is None else counted(SLOW, MB, active=active, busy=0.95)
    evidence = profiled(8 * BOUND_US, row("mine", 8 * BOUND_US, launch=launch(16)), kernels=(own(),), counters=counters)
    found = first(evidence)
    assert found.kind == "too_few_blocks"
    assert "16 blocks on 132" in found.evidence
    assert found.headroom == pytest.approx(8, rel=0.05)
    assert "split-K" in found.change


def test_a_launch_that_the_counters_contradict_is_not_blamed() -> None:
    counters = counted(SLOW, MB, active=0.93, busy=0.97)
    evidence = profiled(3 * BOUND_US, row("mine", 3 * BOUND_US, launch=launch(16)), counters=counters)
    assert all(finding.kind != "too_few_blocks" for finding in diagnose(evidence).findings)


@pytest.mark.parametrize("seen", [False, True])
def test_blocks_of_one_warp_on_a_small_grid_are_too_few_warps(seen: bool) -> None:
    counters = counted(SLOW, MB) if seen else None
    mine = row("mine", 4 * BOUND_US, launch=launch(528, 32))
    found = first(profiled(4 * BOUND_US, mine, kernels=(own(warps=1),), counters=counters))
    assert found.kind == "too_few_warps"
    assert "4 of 64 warps" in found.evidence
    assert found.headroom == pytest.approx(4, rel=0.15)
    assert "num_warps=4" in found.change


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"threads": 128, "registers": 255}, "registers"),
        ({"threads": 128, "shared_bytes": 150_000}, "shared memory"),
        ({"threads": 32, "shared_bytes": 40_000}, "shared memory"),
    ],
)
def test_what_keeps_warps_away_is_named(limits: dict[str, int], said: str) -> None:
    found = first(
        profiled(3 * BOUND_US, row("mine", 3 * BOUND_US, launch=launch(**limits)), counters=counted(SLOW, MB))
    )
    assert found.kind == "too_few_warps"
    assert said in found.evidence


def test_few_warps_are_no_fault_where_memory_is_at_its_ceiling() -> None:
    counters = counted(COPY, MB)
    assert diagnose(profiled(1.1 * BOUND_US, row("mine", 30, launch=launch(528, 32)), counters=counters)).findings == ()


def test_a_wave_of_few_blocks_at_the_end_is_a_tail() -> None:
    mine = row("mine", 2.4 * BOUND_US, launch=launch(140, 1024, registers=64, shared_bytes=120_000))
    for counters in (None, counted(SLOW, MB, active=0.52, busy=0.97)):
        seen = diagnose(profiled(2.4 * BOUND_US, mine, kernels=(own(warps=32, registers=64),), counters=counters))
        assert seen.findings[0].kind == "tail_wave"
        assert seen.bound_class == "tail"
        assert "140 blocks where 132" in seen.findings[0].evidence
        assert 1.7 < seen.findings[0].headroom < 1.95


def test_blocks_of_different_length_are_imbalance() -> None:
    counters = counted(SLOW, MB, active=0.25, busy=0.97)
    seen = diagnose(profiled(5 * BOUND_US, row("mine", 5 * BOUND_US, launch=launch(4096)), counters=counters))
    assert seen.findings[0].kind == "imbalance"
    assert seen.bound_class == "tail"
    assert "26%" in seen.findings[0].evidence
    assert seen.findings[0].headroom == pytest.approx(0.97 / 0.25, rel=0.05)


def test_full_grids_are_balanced() -> None:
    evidence = profiled(2 * BOUND_US, row("mine", 2 * BOUND_US, launch=launch(4096)), counters=counted(SLOW, MB))
    assert diagnose(evidence).findings == ()


def test_without_counters_and_launches_a_kernel_far_from_its_bound_is_not_guessed_at() -> None:
    seen = diagnose(profiled(3 * BOUND_US))
    assert (seen.bound_class, seen.findings) == ("dram", ())
    assert seen.headroom == pytest.approx(3)
    assert "no single fault" in advice(seen)


def test_copies_to_the_host_and_back_are_no_kernels_to_be_fused() -> None:
    copies = (row("Memcpy HtoD (Pageable -> Device)", 300), row("Memcpy DtoH (Device -> Pageable)", 280))
    seen = diagnose(profiled(1775, *copies, megabytes=8.4, span_us=1775, busy_us=588, waits=2.0))
    assert [finding.kind for finding in seen.findings] == ["sync"]


def test_without_counters_and_launches_names_and_times_still_tell_of_missed_fusion() -> None:
    assert first(profiled(3 * BOUND_US, row("a", 30), row("b", 30), row("c", 30))).kind == "missed_fusion"


def test_a_device_that_no_limits_are_known_of_is_diagnosed_without_them() -> None:
    evidence = profiled(4 * BOUND_US, row("mine", 4 * BOUND_US, launch=launch(528, 32)))
    assert evidence.device is not None
    unknown = evidence.model_copy(update={"device": evidence.device.model_copy(update={"target": "sm_999"})})
    assert diagnose(unknown).findings == ()


def test_no_work_on_the_device_is_no_diagnosis() -> None:
    seen = diagnose(profiled(30, row("mine", 0)))
    assert (seen.bound_class, seen.findings) == ("", ())

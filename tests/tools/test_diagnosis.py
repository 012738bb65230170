import pytest
from profiles import COPY, SLOW, counted, launch, own, profiled, row

from kernelgate.tools.kit.diagnosis import advice, diagnose
from kernelgate.tools.kit.evidence import Evidence
from kernelgate.tools.kit.findings import Finding

MB = 128.0
BOUND_US = MB * 1e3 / 4280
"""30 µs: one read and one write of 64 MB at the ceiling of a copy."""


def first(evidence: Evidence) -> Finding:
    findings = diagnose(evidence).findings
    assert findings, "nothing was found"
    return findings[0]


def matmul_us(gflop: float) -> float:
    """At the ceiling."""
    return gflop / 600_000 * 1e6


# What has no fault.


def test_a_copy_at_the_ceiling_has_no_fault_and_is_bound_by_dram() -> None:
    """Counters measured on an H200."""
    seen = diagnose(profiled(1.02 * 537 / 4.28, megabytes=537, counters=counted(COPY, 537)))
    assert seen.findings == ()
    assert seen.bound_class == "dram"


def test_a_copy_that_is_a_little_above_its_bound_has_no_fault_either() -> None:
    seen = diagnose(profiled(1.1 * 537 / 4.28, megabytes=537, counters=counted(COPY, 537)))
    assert (seen.bound_class, seen.findings) == ("dram", ())


def test_a_softmax_at_its_bound_has_no_fault() -> None:
    counters = counted(COPY, MB, 1.0, issue=0.35, xu=0.3, dram_read=0.4, dram_write=0.4)
    assert diagnose(profiled(1.04 * BOUND_US, counters=counters)).findings == ()


def test_a_softmax_that_reads_its_rows_again_from_the_cache_is_not_called_uncoalesced() -> None:
    """Counters measured on an H200, of a slow one: three passes, of which two hit."""
    counters = counted(COPY, MB, 2.0, active=0.945, dram_read=0.25, dram_write=0.25, issue=0.68)
    kinds = {finding.kind for finding in diagnose(profiled(1.75 * BOUND_US, counters=counters)).findings}
    assert "uncoalesced" not in kinds
    assert "many_passes" not in kinds


def test_a_product_of_cublas_has_no_fault() -> None:
    """2048³ in float16, counters measured on an H200."""
    name = "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT"
    counters = counted(COPY, 25, 4.0, active=0.943, busy=0.95, dram_read=0.08, dram_write=0.02, issue=0.11, tensor=0.7)
    for times in (1.03, 1.3):
        call_us = times * matmul_us(17.2)
        evidence = profiled(call_us, row(name, call_us, launch=launch(128, 384, registers=168, shared_bytes=200_000)),
                            megabytes=25, gflop=17.2, counters=counters, serve=True)  # fmt: skip
        assert diagnose(evidence).findings == ()


def test_within_five_percent_of_the_bound_the_advice_is_to_stop() -> None:
    seen = diagnose(profiled(1.04 * BOUND_US, kernels=(own(spill_bytes=400),)))
    assert seen.findings == ()
    assert "stop" in advice(seen)


def test_a_kernel_as_short_as_a_launch_can_become_no_shorter() -> None:
    seen = diagnose(profiled(3.0, row("mine", 3.0, launch=launch(1)), megabytes=0.01))
    assert (seen.findings, seen.headroom, seen.bound_us) == ((), 1.0, 3.0)


def test_a_pooling_that_reads_its_input_again_and_again_is_not_uncoalesced() -> None:
    """Nine reads an output, all of them of neighbouring lanes: more than an instruction a sector."""
    counters = counted(SLOW, MB, 5.0, issue=0.75, alu=0.6, l1=0.5)
    assert all(f.kind != "uncoalesced" for f in diagnose(profiled(2 * BOUND_US, counters=counters)).findings)


def test_spills_that_the_counters_do_not_see_are_no_fault() -> None:
    evidence = profiled(2 * BOUND_US, kernels=(own(spill_bytes=64),), counters=counted(SLOW, MB, 1.02))
    assert all(finding.kind != "spills" for finding in diagnose(evidence).findings)


def test_a_binary_that_has_float64_outside_of_its_loops_has_no_fault() -> None:
    evidence = profiled(2 * BOUND_US, kernels=(own(doubles=True),), counters=counted(SLOW, MB, fp64=0.01))
    assert all(finding.kind != "precision" for finding in diagnose(evidence).findings)


def test_an_autotuned_kernel_of_which_one_configuration_spills_is_not_blamed_for_it() -> None:
    kernels = (own(spill_bytes=0), own(spill_bytes=512, registers=255))
    assert diagnose(profiled(2 * BOUND_US, kernels=kernels)).findings == ()
    launched = row("mine", 60, launch=launch(registers=255))
    assert first(profiled(2 * BOUND_US, launched, kernels=kernels)).kind == "spills"


# Memory.


def test_a_warp_that_reads_a_sector_a_lane_is_uncoalesced_and_told_how_many_sectors_it_wastes() -> None:
    found = first(profiled(6 * BOUND_US, counters=counted(SLOW, MB, 7.9, l1=0.7)))
    assert found.kind == "uncoalesced"
    assert "7.9x" in found.evidence
    assert "128 MB" in found.evidence
    assert found.headroom == pytest.approx(6.0, rel=0.01)
    assert "mine" in found.change


def test_a_transpose_with_one_strided_side_is_uncoalesced() -> None:
    assert first(profiled(3 * BOUND_US, counters=counted(SLOW, MB, 4.5, issue=0.085))).kind == "uncoalesced"


def test_strided_access_that_reaches_dram_is_not_called_many_passes() -> None:
    counters = counted(COPY, MB, 8.0, dram_read=0.7, dram_write=0.1, issue=0.05)
    kinds = [finding.kind for finding in diagnose(profiled(6 * BOUND_US, counters=counters)).findings]
    assert kinds == ["uncoalesced"]


def test_without_instructions_counted_only_wasted_sectors_that_also_miss_are_uncoalesced() -> None:
    counters = counted(SLOW, MB, 8.0)
    del counters["issue"]
    assert first(profiled(6 * BOUND_US, counters=counters)).kind == "uncoalesced"
    counters["l1_misses"] = counters["l1_sectors"] / 8
    assert diagnose(profiled(6 * BOUND_US, counters=counters)).findings == ()


def test_lanes_that_meet_in_one_bank_of_shared_memory_are_bank_conflicts() -> None:
    """A transpose through a tile without padding: 33 passes for 14 instructions."""
    call_us = 2.6 * BOUND_US
    counters = counted(SLOW, MB, 1.0, shared_wavefronts=17.3e6, issue=0.07, l1=0.95)
    found = first(profiled(call_us, counters=counters))
    assert found.kind == "bank_conflicts"
    assert "1.73e+07" in found.evidence
    assert "[32][33]" in found.change
    assert 1.5 < found.headroom <= 2.6001


def test_shared_memory_without_conflicts_is_no_fault() -> None:
    counters = counted(SLOW, MB, 1.0, shared_wavefronts=1.05e6, issue=0.1)
    assert diagnose(profiled(1.5 * BOUND_US, counters=counters)).findings == ()


def test_one_kernel_that_moves_three_times_the_bytes_through_dram_makes_many_passes() -> None:
    counters = counted(COPY, MB, 3.0, dram_read=0.62, dram_write=0.2, issue=0.4)
    found = first(profiled(3.1 * BOUND_US, counters=counters))
    assert found.kind == "many_passes"
    assert "2.9x the 128 MB" in found.evidence
    assert 2 < found.headroom <= 3.1001


def test_several_kernels_that_each_pass_over_memory_are_missed_fusion() -> None:
    rows = [row(f"void at::native::vectorized_elementwise_kernel<4, {name}>(int)", 31) for name in "abcd"]
    counters = counted(COPY, MB, 4.0)
    for evidence in (profiled(4.2 * BOUND_US, *rows), profiled(4.2 * BOUND_US, *rows, counters=counters)):
        found = first(evidence)
        assert found.kind == "missed_fusion"
        assert "4 kernels" in found.evidence
        assert found.headroom == pytest.approx(4.2, rel=0.05)


def test_passes_beside_a_product_belong_into_its_epilogue() -> None:
    call_us = 1.5 * matmul_us(137)
    rows = (
        row("nvjet_hsh_128x256", 0.7 * call_us),
        row("void at::native::vectorized_elementwise_kernel<4, at::native::Relu>(int)", 0.3 * call_us),
    )
    found = first(profiled(call_us, *rows, gflop=137))
    assert found.kind == "missed_fusion"
    assert "30%" in found.evidence
    assert "nvjet" in found.change


def test_a_kernel_without_wide_loads_is_told_so_if_nothing_else_explains_its_time() -> None:
    narrow = (own(vector_loads=False),)
    counters = counted(SLOW, MB, issue=0.55, dram_read=0.2, dram_write=0.2)
    for evidence in (
        profiled(1.8 * BOUND_US, kernels=narrow),
        profiled(1.8 * BOUND_US, kernels=narrow, counters=counters),
    ):
        assert first(evidence).kind == "narrow_loads"
        assert "128-bit" in first(evidence).evidence
    assert "45%" in first(profiled(1.8 * BOUND_US, kernels=narrow, counters=counters)).evidence


# Registers, types, tensor cores, atomics.


def test_spills_come_before_the_latency_that_they_cause() -> None:
    mine = row("mine", 5 * BOUND_US, launch=launch(2048, 128, registers=255))
    kernels = (own(spill_bytes=256, registers=255, warps=4, vector_loads=False),)
    for counters in (None, counted(SLOW, MB, 3.0)):
        found = first(profiled(5 * BOUND_US, mine, kernels=kernels, counters=counters))
        assert found.kind == "spills"
        assert "256 bytes per thread" in found.evidence
        assert "num_warps=8" in found.change
        assert 1.5 < found.headroom <= 5.0001


@pytest.mark.parametrize("counters", [None, counted(SLOW, MB, fp64=0.5)])
def test_float64_in_an_own_kernel_is_unneeded_precision(counters: dict[str, float] | None) -> None:
    found = first(profiled(3 * BOUND_US, kernels=(own(doubles=True),), counters=counters))  # type: ignore[arg-type]  # keys
    assert found.kind == "precision"
    assert "float64" in found.evidence


def test_a_kernel_of_torch_in_float64_is_known_by_its_name() -> None:
    name = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, at::native::sum_functor<double>>>(R)"
    assert first(profiled(3 * BOUND_US, row(name, 3 * BOUND_US))).kind == "precision"


def test_float64_is_no_fault_in_a_task_of_float64() -> None:
    evidence = profiled(3 * BOUND_US, kernels=(own(doubles=True),))
    asked = evidence.model_copy(update={"workload": evidence.workload.model_copy(update={"doubles": True})})
    assert "precision" not in [finding.kind for finding in diagnose(asked).findings]


def test_products_without_tensor_cores_are_told_where_these_could_serve() -> None:
    call_us = 12 * matmul_us(137)
    mine = row("mine", call_us, launch=launch(4096))
    for counters in (None, counted(SLOW, 100, 30.0, fma=0.8, issue=0.8)):
        for evidence in (
            profiled(call_us, mine, gflop=137, kernels=(own(),), counters=counters, serve=True),
            profiled(call_us, row("ampere_sgemm_128x64_nn", call_us), gflop=137, counters=counters, serve=True),
        ):
            assert first(evidence).kind == "tensor_cores_unused"
            assert "137 Gflop" in first(evidence).evidence
            assert first(evidence).headroom == pytest.approx(12)
            assert diagnose(evidence).bound_class == "tensor_idle"
    assert all(
        f.kind != "tensor_cores_unused" for f in diagnose(profiled(call_us, mine, gflop=137, kernels=(own(),))).findings
    )


def test_threads_that_wait_at_atomics_are_told_before_the_latency() -> None:
    mine = row("mine", 8 * BOUND_US, launch=launch())
    for counters in (None, counted(SLOW, MB, 1.2, issue=0.03, dram_read=0.05, dram_write=0.01)):
        found = first(profiled(8 * BOUND_US, mine, kernels=(own(atomics=True),), counters=counters))
        assert found.kind == "atomics"
        assert "tl.atomic_add" in found.change
        assert found.headroom == pytest.approx(8, rel=0.01)


def test_an_atomic_in_a_kernel_near_its_bound_is_no_fault() -> None:
    assert diagnose(profiled(1.6 * BOUND_US, kernels=(own(atomics=True),))).findings == ()


def test_fusing_a_short_pass_into_a_long_one_gains_the_short_one_alone() -> None:
    found = first(profiled(4 * BOUND_US, row("long", 3.2 * BOUND_US), row("copy", 0.8 * BOUND_US)))
    assert found.kind == "missed_fusion"
    assert found.headroom == pytest.approx(1.25)


# Classes, and two faults at once.


@pytest.mark.parametrize(
    ("readings", "bound_class"),
    [
        ({}, "latency"),
        ({"dram_read": 0.4, "dram_write": 0.4}, "dram"),
        ({"l2": 0.8}, "l2"),
        ({"issue": 0.68}, "compute"),
        ({"xu": 0.75}, "compute"),
        ({"active": 0.6}, "tail"),
    ],
)
def test_the_busiest_unit_names_the_class(readings: dict[str, float], bound_class: str) -> None:
    seen = diagnose(profiled(1.5 * BOUND_US, counters=counted(SLOW, MB, 1.0, **readings)))
    assert (seen.bound_class, seen.findings) == (bound_class, ())


def test_of_two_faults_the_graver_cause_comes_first() -> None:
    mine = row("mine", 6 * BOUND_US, launch=launch(40))
    kernels = (own(spill_bytes=128, doubles=True, vector_loads=False),)
    seen = diagnose(profiled(6 * BOUND_US, mine, kernels=kernels, waits=3.0, host_us=400, span_us=390, busy_us=180))
    assert [finding.kind for finding in seen.findings] == ["sync", "spills"]

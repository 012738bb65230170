"""Occupancy against values worked out with NVIDIA's occupancy calculator rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.kit.facts import Kernel
from kernelgate.tools.kit.occupancy import LIMITS, advice, limits_of, occupancy, why_unknown


def kernel(
    *, registers: int = 32, shared: int = 0, warps: int = 8, spills: int = 0, tensor: bool = False, vector: bool = True
) -> Kernel:
    return Kernel(
        name="k", target="sm_90", registers=registers, spill_bytes=spills, shared_bytes=shared, warps=warps,
        tensor_cores=tensor, vector_loads=vector,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "registers", "shared", "warps", "blocks", "share", "limited_by"),
    [
        ("sm_80", 32, 0, 8, 8, 1.0, "warps"),
        ("sm_80", 40, 0, 8, 6, 0.75, "registers"),
        ("sm_80", 64, 0, 8, 4, 0.5, "registers"),
        ("sm_80", 128, 0, 4, 4, 0.25, "registers"),
        ("sm_80", 255, 0, 8, 1, 0.125, "registers"),
        ("sm_80", 32, 48 << 10, 8, 3, 0.375, "shared_memory"),
        ("sm_80", 16, 0, 1, 32, 0.5, "blocks"),
        ("sm_86", 16, 0, 1, 16, 16 / 48, "blocks"),
        ("sm_89", 40, 0, 8, 6, 1.0, "warps"),
        ("sm_89", 16, 0, 1, 24, 0.5, "blocks"),
        ("sm_90", 168, 98304, 4, 2, 0.125, "shared_memory"),
        ("sm_90", 32, 227 << 10, 4, 1, 0.0625, "shared_memory"),
        ("sm_100", 64, 16 << 10, 4, 8, 0.5, "registers"),
        ("sm_75", 32, 0, 8, 4, 1.0, "warps"),
        ("sm_75", 32, 16 << 10, 4, 4, 0.5, "shared_memory"),
        ("sm_75", 32, 64 << 10, 8, 1, 0.25, "shared_memory"),
        ("sm_87", 16, 0, 1, 16, 16 / 48, "blocks"),
        ("sm_87", 32, 40 << 10, 4, 4, 16 / 48, "shared_memory"),
        ("sm_103", 64, 16 << 10, 4, 8, 0.5, "registers"),
        ("sm_120", 16, 0, 1, 24, 0.5, "blocks"),
        ("sm_121", 40, 99 << 10, 8, 1, 8 / 48, "shared_memory"),
    ],
)
def test_blocks_share_and_limiter_are_those_of_the_calculator(
    target: str, registers: int, shared: int, warps: int, blocks: int, share: float, limited_by: str
) -> None:
    found = occupancy(kernel(registers=registers, shared=shared, warps=warps), target)
    assert (found.blocks_per_sm, found.share, found.limited_by) == (blocks, pytest.approx(share), limited_by)
    assert found.warps_per_sm == blocks * warps


def test_a_block_with_more_shared_memory_than_one_may_have_does_not_fit() -> None:
    big = kernel(shared=(227 << 10) + 1)
    found = occupancy(big, "sm_90")
    assert (found.blocks_per_sm, found.limited_by) == (0, "shared_memory")
    assert "does not fit" in advice(big, found)[0]


def test_a_block_whose_warps_take_more_registers_than_there_are_does_not_fit() -> None:
    assert occupancy(kernel(registers=255, warps=16), "sm_90").limited_by == "registers"
    assert occupancy(kernel(registers=255, warps=16), "sm_90").blocks_per_sm == 0


def test_an_architecture_variant_has_the_limits_of_its_family() -> None:
    assert limits_of("sm_90a") is limits_of("sm_90")


def test_an_unknown_target_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"sm_123; known are .*sm_90"):
        occupancy(kernel(), "sm_123")


def test_a_kernel_without_warps_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one is needed"):
        occupancy(kernel(warps=0), "sm_90")


@given(
    target=st.sampled_from(sorted(LIMITS)),
    registers=st.integers(1, 255),
    shared=st.integers(0, 227 << 10),
    warps=st.integers(1, 32),
)
def test_no_limit_of_the_multiprocessor_is_ever_exceeded(target: str, registers: int, shared: int, warps: int) -> None:
    found, limits = occupancy(kernel(registers=registers, shared=shared, warps=warps), target), LIMITS[target]
    assert found.warps_per_sm <= limits.warps
    assert found.blocks_per_sm <= limits.blocks
    assert found.warps_per_sm * 32 * registers <= limits.registers
    assert found.blocks_per_sm * shared <= limits.shared_bytes
    assert 0 <= found.share <= 1


@given(registers=st.integers(1, 254), warps=st.integers(1, 32))
def test_more_registers_never_raise_the_occupancy(registers: int, warps: int) -> None:
    fewer = occupancy(kernel(registers=registers, warps=warps), "sm_90")
    more = occupancy(kernel(registers=registers + 1, warps=warps), "sm_90")
    assert more.blocks_per_sm <= fewer.blocks_per_sm


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (kernel(spills=16), "16 bytes per thread lie in local memory"),
        (kernel(registers=255, vector=False), "only 12% of the warps fit: its registers limit it"),
        (kernel(shared=100 << 10, warps=4), "its shared memory limits it"),
        (kernel(vector=False), "at most 32 bits per thread"),
    ],
)
def test_the_gravest_finding_is_the_only_line(subject: Kernel, words: str) -> None:
    lines = advice(subject, occupancy(subject, "sm_90"))
    assert len(lines) == 1
    assert words in lines[0]


def test_spills_are_told_where_the_occupancy_is_unknown() -> None:
    assert "16 bytes per thread lie in local memory" in advice(kernel(spills=16), None)[0]
    assert advice(kernel(), None) == ()


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (kernel(), ""),
        (kernel(warps=0), "the size of a block is decided at the launch"),
        (kernel().model_copy(update={"target": "sm_123"}), "occupancy on sm_123 is unknown"),
        (kernel(registers=0), "where registers are"),
    ],
)
def test_an_occupancy_that_is_unknown_is_unknown_for_a_reason(subject: Kernel, words: str) -> None:
    assert words in why_unknown(subject)
    assert bool(words) == bool(why_unknown(subject))


def test_a_kernel_without_findings_gets_no_advice() -> None:
    assert advice(kernel(), occupancy(kernel(), "sm_90")) == ()


def test_low_occupancy_is_no_finding_where_tensor_cores_do_the_work() -> None:
    matmul = kernel(registers=168, shared=98304, warps=4, tensor=True)
    assert advice(matmul, occupancy(matmul, "sm_90")) == ()

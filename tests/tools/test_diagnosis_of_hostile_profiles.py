import math
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import CEILINGS, H200, SLOW, counted, launch, own, profiled, row

from kernelgate.tools.kit.diagnosis import CLASS_OF, DETECTORS, EXPLAINED_BY, RANK, Diagnosis, advice, diagnose
from kernelgate.tools.kit.evidence import Counter, Counters, DeviceShape, Evidence, Launch, Operator, OperatorProfile
from kernelgate.tools.kit.facts import Ceilings, Kernel, WorkloadFacts
from kernelgate.tools.kit.findings import BoundClass, FindingKind

ABSURD = (0.0, -1.0, 5e-324, 1e-300, 1e308, math.nan, math.inf, -math.inf)
NUMBERS = st.sampled_from(ABSURD) | st.floats() | st.floats(0, 1e4)
COUNTS = st.sampled_from([0, 1, -1, 10, 132, 10**400]) | st.integers(0, 10_000)
NAMES = st.sampled_from(["", "mine", "x" * 5000, "\x00\n", "void a<double>(", "sgemm"]) | st.text(max_size=80)


def unchecked(kind: type, **parts: object) -> st.SearchStrategy[object]:
    """Built without the checks of its type, as no message could be."""
    strategies = {name: part if isinstance(part, st.SearchStrategy) else st.just(part) for name, part in parts.items()}
    return st.builds(kind.model_construct, **strategies)  # type: ignore[attr-defined]  # any model


LAUNCHES = st.none() | unchecked(Launch, blocks=COUNTS, threads=COUNTS, registers=COUNTS, shared_bytes=COUNTS)
ROWS = unchecked(Operator, name=NAMES, calls=COUNTS, self_us=NUMBERS, share=NUMBERS, launch=LAUNCHES)
KERNELS = unchecked(
    Kernel, name=NAMES, target="sm_90", registers=COUNTS, spill_bytes=COUNTS, shared_bytes=COUNTS, warps=COUNTS,
    tensor_cores=st.booleans(), vector_loads=st.booleans(), atomics=st.booleans(), doubles=st.booleans(),
)  # fmt: skip
PROFILES = unchecked(
    OperatorProfile, workload="w", calls=COUNTS, call_us=NUMBERS, operators=st.lists(ROWS, max_size=4).map(tuple),
    rows=COUNTS, span_us=NUMBERS, busy_us=NUMBERS, host_us=NUMBERS, waits=NUMBERS, note="",
)  # fmt: skip
COUNTERS = unchecked(
    Counters, values=st.dictionaries(st.sampled_from(get_args(Counter)), NUMBERS), calls=COUNTS, call_us=NUMBERS,
    passes=COUNTS, seconds=NUMBERS,
)  # fmt: skip
EVIDENCE = unchecked(
    Evidence,
    workload=unchecked(WorkloadFacts, name="w", held_out=False, bytes_in=COUNTS, bytes_out=COUNTS, flops=COUNTS),
    profile=PROFILES,
    ceilings=st.just(CEILINGS)
    | unchecked(
        Ceilings, copy_gb_s=NUMBERS, cache_gb_s=NUMBERS, matmul_gflop_s=NUMBERS, empty_us=NUMBERS, launch_us=NUMBERS
    ),
    device=st.sampled_from([None, H200])
    | unchecked(DeviceShape, target=NAMES, multiprocessors=COUNTS, cache_bytes=COUNTS, dram_gb_s=NUMBERS),
    counters=st.none() | COUNTERS,
    kernels=st.lists(KERNELS, max_size=3).map(tuple),
    tensor_cores_serve=st.booleans(),
)


def assert_bounded(seen: Diagnosis) -> None:
    kinds = [finding.kind for finding in seen.findings]
    assert len(kinds) == len(set(kinds)) <= 2
    assert math.isfinite(seen.headroom)
    assert math.isfinite(seen.bound_us)
    for finding in seen.findings:
        assert math.isfinite(finding.headroom)
        assert finding.headroom >= 1
        assert 0 < len(finding.evidence) <= 200
        assert 0 < len(finding.change) <= 300
        assert "\n" not in finding.evidence + finding.change
    assert advice(seen)


@settings(max_examples=200, deadline=None)
@given(EVIDENCE)
def test_whatever_a_candidate_writes_the_diagnosis_is_bounded(evidence: Evidence) -> None:
    assert_bounded(diagnose(evidence))


@settings(max_examples=200, deadline=None)
@given(
    st.floats(1, 1e5),
    st.lists(
        st.tuples(st.sampled_from(["mine", "other", "sgemm"]), st.floats(0, 1e4), st.integers(0, 200)), max_size=5
    ),
    st.dictionaries(st.sampled_from([*SLOW, "l1_sectors", "l1_misses"]), st.floats(0, 1)),
    st.floats(0, 40),
    st.builds(
        own, atomics=st.booleans(), doubles=st.booleans(), vector_loads=st.booleans(), spill_bytes=st.integers(0, 600)
    ),
    st.builds(launch, st.integers(0, 9000), st.sampled_from([0, 1, 32, 256, 1024])),
    st.floats(0, 1e4),
    st.booleans(),
)
def test_no_possible_profile_gives_more_than_two_findings_or_one_twice(
    call_us: float,
    rows: list[tuple[str, float, int]],
    values: dict[Counter, float],
    sweeps: float,
    kernel: Kernel,
    launched: Launch,
    host_us: float,
    serve: bool,
) -> None:
    operators = [row(name, us, times, launched) for name, us, times in rows]
    counters = counted({**SLOW, **values}, 128, sweeps)
    evidence = profiled(
        call_us, *operators, kernels=(kernel,), counters=counters, host_us=host_us, serve=serve, gflop=50.0 * serve
    )
    assert_bounded(diagnose(evidence))
    assert_bounded(diagnose(evidence.model_copy(update={"counters": None})))
    assert_bounded(diagnose(evidence.model_copy(update={"device": None})))


@pytest.mark.parametrize("number", ABSURD)
def test_a_number_that_is_none_is_no_reason_for_a_finding(number: float) -> None:
    rows = (Operator.model_construct(name="mine", calls=1, self_us=number, share=number, launch=None),)
    evidence = profiled(100.0, *rows, waits=0.0)
    assert_bounded(diagnose(evidence))


def test_a_long_name_leaves_the_numbers_in_the_line() -> None:
    found = diagnose(profiled(300, row("k" * 5000, 300), counters=counted(SLOW, 128, 7.9, issue=0.03))).findings[0]
    assert "7.9x" in found.evidence
    assert "…" in found.evidence


def test_each_kind_of_a_gpu_has_its_rank_and_each_class_its_detectors() -> None:
    of_cpu = {"overhead", "one_operator"}
    assert set(RANK) == set(get_args(FindingKind)) - of_cpu
    assert {*EXPLAINED_BY, *CLASS_OF} <= set(RANK)
    assert {*DETECTORS, "", "memory", "sync", "launch", "host"} == set(get_args(BoundClass))


def test_what_a_finding_explains_stands_behind_it() -> None:
    assert all(RANK[cause] <= RANK[effect] for cause, effects in EXPLAINED_BY.items() for effect in effects)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.budget.model import Verdict
from kernelgate.tools.kit.evidence import HotLine, Inspected, Inspection, Operator, OperatorProfile, Stall
from kernelgate.tools.kit.facts import Ceilings, WorkloadFacts
from kernelgate.tools.kit.findings import amount
from kernelgate.tools.kit.kernel_names import plain_name
from kernelgate.tools.kit.readings import MOST
from kernelgate.tools.kit.waits import WORDS, told
from kernelgate.tools.kit.wire import ChildExit
from kernelgate.tools.profile import FULL_HOLD_S, LIMIT_S, NSIGHT_S, ProfileFacts, ProfilePlan, ProfileReport, judge

CEILINGS = Ceilings(copy_gb_s=10.0, cache_gb_s=40.0, matmul_gflop_s=50.0)


def profiled(
    call_us: float,
    *operators: tuple[str, int, float],
    flops: int = 0,
    doubles_share: float = 0.0,
    task_in_doubles: bool = False,
) -> ProfileReport:
    """Operators as (name, calls per call of forward, µs per call of forward); 8 MB of traffic, 800 µs of copy."""
    rows = tuple(
        Operator(name=name, calls=10 * calls, self_us=10 * us, share=us / call_us) for name, calls, us in operators
    )
    facts = ProfileFacts(
        workload=WorkloadFacts(
            name="w", held_out=False, bytes_in=4_000_000, bytes_out=4_000_000, flops=flops, doubles=task_in_doubles
        ),
        profile=OperatorProfile(workload="w", calls=10, call_us=call_us, operators=rows, doubles_share=doubles_share),
        ceilings=CEILINGS,
    )
    return judge(facts, ChildExit(kind="finished"), ProfilePlan())


def test_several_large_passes_over_memory_are_found_first_with_their_headroom() -> None:
    report = profiled(3200, ("aten::sub", 1, 900), ("aten::exp", 1, 900), ("aten::sum", 1, 600), ("aten::div", 1, 800))
    assert report.verdict is Verdict.diagnosed
    assert report.bound_class == "memory"
    assert report.findings[0].kind == "many_passes"
    assert report.findings[0].headroom == pytest.approx(3200 / 900), "the longest pass stays"
    assert "3200 µs where 8 MB need 800" in report.findings[0].evidence


def test_many_tiny_operators_are_overhead() -> None:
    report = profiled(4000, ("aten::add", 500, 1500), ("aten::mul", 500, 1500))
    assert [finding.kind for finding in report.findings] == ["overhead"]
    assert report.findings[0].headroom == 5.0, "a gain beyond the roofline is none"


def test_the_gain_of_fewer_operators_leaves_the_long_one_beside_them() -> None:
    (found,) = profiled(100_000, ("aten::add_", 50_000, 90_000), ("aten::_softmax", 1, 2500)).findings
    assert (found.kind, found.headroom) == ("overhead", 40.0)


def test_one_operator_that_takes_most_of_the_time_is_named() -> None:
    report = profiled(4000, ("aten::copy_", 1, 3600), ("aten::add", 1, 100))
    assert report.findings[0].kind == "one_operator"
    assert "aten::copy_" in report.findings[0].change


def test_an_operator_that_takes_most_of_a_call_is_told_with_the_bandwidth_that_it_reaches() -> None:
    (found,) = profiled(4000, ("aten::_softmax", 1, 3960)).findings
    assert found.evidence == "aten::_softmax takes 99% of 4000 µs a call, which does 2 of the 10 GB/s of a copy"


def test_a_product_that_takes_most_of_a_call_is_told_with_its_rate_of_operations() -> None:
    (found,) = profiled(160_000, ("aten::mm", 1, 150_000), flops=4_000_000_000).findings
    assert found.evidence == "aten::mm takes 94% of 160000 µs a call, which does 25 of 50 GFLOP/s"


def test_a_product_at_the_rate_of_the_ceiling_is_no_fault() -> None:
    report = profiled(160_000, ("aten::addmm", 1, 85_000), ("aten::gelu", 1, 75_000), flops=4_000_000_000)
    assert (report.findings, report.summary) == (
        (), "no single fault stands out: a call takes 2.0x its bound of 80000 µs"
    )  # fmt: skip


def test_several_passes_beside_a_product_are_told_with_what_one_pass_would_leave() -> None:
    rows = (("aten::tanh", 1, 50_000), ("aten::mul", 2, 40_000), ("aten::addmm", 1, 90_000))
    (found,) = profiled(180_000, *rows, flops=4_000_000_000).findings
    assert (found.kind, round(found.headroom, 3)) == ("missed_fusion", 1.286)
    assert "50% of 180000 µs a call goes into 3 passes over memory beside the products (aten::tanh" in found.evidence


def test_a_call_whose_time_lies_outside_the_operators_is_told_so() -> None:
    (found,) = profiled(2200, ("aten::sigmoid", 1, 220)).findings
    assert (found.kind, found.headroom) == ("host_time", 2.75), "800 of 2200 µs are the bound"
    assert found.evidence.startswith("torch's operators take 220 of 2200 µs a call")


DETOUR = (("aten::_softmax", 1, 3000), ("aten::copy_", 2, 1500))


def test_a_detour_through_float64_is_told_before_the_passes_that_it_makes() -> None:
    (found,) = profiled(4600, *DETOUR, doubles_share=0.98).findings
    assert (found.kind, round(found.headroom, 2)) == ("precision", 1.96)
    assert found.evidence == (
        "98% of the operators' time of 4600 µs a call goes into float64, most of it in aten::_softmax, and the task's "
        "types need none"
    )


def test_float64_is_no_fault_in_a_task_of_float64_or_of_a_sum_alone() -> None:
    of_the_task = profiled(4600, *DETOUR, doubles_share=0.98, task_in_doubles=True)
    of_a_sum = profiled(4600, *DETOUR, doubles_share=0.2)
    assert [report.findings[0].kind for report in (of_the_task, of_a_sum)] == ["many_passes", "many_passes"]


def test_no_number_of_a_finding_is_a_power_of_ten() -> None:
    assert [amount(number) for number in (0.5123, 41.23, 99.96, 3912.4)] == ["0.512", "41.2", "100", "3912"]
    assert "e+" not in profiled(12_000, ("aten::sigmoid", 1, 3910)).findings[0].evidence


def test_what_python_takes_between_many_operators_is_their_overhead() -> None:
    assert [found.kind for found in profiled(1200, ("aten::add", 200, 300)).findings] == ["overhead"]


def test_an_operator_that_runs_twice_a_call_is_told_so() -> None:
    (found,) = profiled(160_000, ("aten::mm", 2, 150_000), flops=4_000_000_000).findings
    assert found.evidence.startswith("aten::mm, run 2x, takes 94% of 160000 µs a call")


def test_a_dominant_copy_comes_before_the_passes_that_it_is_one_of() -> None:
    report = profiled(4000, ("aten::copy_", 1, 2000), ("aten::exp", 1, 900), ("aten::div", 1, 900))
    assert [(one.kind, "aten::copy_" in one.evidence) for one in report.findings] == [("one_operator", True)]


def test_what_a_call_reaches_stands_beside_the_measured_ceilings() -> None:
    reached = profiled(3200, ("aten::exp", 1, 3000), flops=6_400_000).reached
    assert reached is not None
    assert reached.model_dump() == {"gb_s": 2.5, "ceiling_gb_s": 10.0, "gflop_s": 2.0, "ceiling_gflop_s": 50.0}


def test_a_candidate_at_its_bound_has_no_finding() -> None:
    report = profiled(850, ("aten::_softmax", 1, 840))
    assert report.verdict is Verdict.no_finding
    assert report.findings == ()


def test_a_call_far_from_its_bound_is_not_said_to_be_near_it_where_no_operator_was_seen() -> None:
    assert profiled(8000).summary == "no single fault stands out: a call takes 10.0x its bound of 800 µs"


def test_names_and_times_that_a_candidate_made_up_are_shown_without_what_steers_a_terminal() -> None:
    (row,) = profiled(4000, ("evil\x1b[2J\nIgnore", 1, 1e37)).operators
    assert (row.name, row.self_us) == ("evil [2J Ignore", float(MOST))


def test_a_task_with_more_arithmetic_than_bytes_is_compute_bound() -> None:
    assert profiled(90_000, ("aten::mm", 1, 89_000), flops=4_000_000_000).bound_class == "compute"


def test_at_most_two_findings_are_told() -> None:
    report = profiled(
        9000,
        ("aten::copy_", 1, 5000),
        ("aten::a", 1, 900),
        ("aten::b", 1, 900),
        ("aten::c", 1, 900),
        ("aten::d", 400, 900),
    )
    assert 1 <= len(report.findings) <= 2


def test_on_a_gpu_the_share_of_the_candidates_own_kernels_is_told() -> None:
    kernels = (("void rows<float, 4>(float*, int)", 1, 900), ("void at::native::cunn_SoftMaxForward<4>(int)", 1, 300))
    operators = tuple(Operator(name=name, calls=n, self_us=us, share=0.5) for name, n, us in kernels)
    facts = ProfileFacts(
        workload=WorkloadFacts(name="w", held_out=False, bytes_in=4, bytes_out=4, flops=0),
        profile=OperatorProfile(workload="w", calls=1, call_us=1200, operators=operators),
        ceilings=CEILINGS, on_gpu=True,
    )  # fmt: skip
    finished = ChildExit(kind="finished")
    assert judge(facts, finished, ProfilePlan(own_kernels=("rows",))).own_kernel_share == 0.75
    assert judge(facts, finished, ProfilePlan()).own_kernel_share == 0.0
    on_a_cpu = facts.model_copy(update={"on_gpu": False})
    assert judge(on_a_cpu, finished, ProfilePlan(own_kernels=("rows",))).own_kernel_share is None


def test_a_call_that_gives_a_gpu_no_work_has_nothing_to_profile() -> None:
    facts = ProfileFacts(
        workload=WorkloadFacts(name="w", held_out=False, bytes_in=4, bytes_out=4, flops=0),
        profile=OperatorProfile(workload="w", calls=1, call_us=1.3, operators=()),
        ceilings=CEILINGS, on_gpu=True,
    )  # fmt: skip
    report = judge(facts, ChildExit(kind="finished"), ProfilePlan())
    assert report.verdict is Verdict.no_finding
    assert "gives the device no work" in report.summary


def test_a_profile_that_never_came_is_a_crash_not_a_diagnosis() -> None:
    assert judge(None, ChildExit(kind="finished"), ProfilePlan()).verdict is Verdict.crashed


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("aten::_softmax", "aten::_softmax"),
        ("my_triton_kernel", "my_triton_kernel"),
        (
            "void at::native::vectorized_elementwise_kernel<2, at::native::exp_kernel_cuda(at::TensorIteratorBase&)",
            "vectorized_elementwise_kernel (exp_kernel_cuda)",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor",
            "elementwise_kernel (BinaryFunctor)",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(P)",
            "Kernel2 (cutlass_80_simt_sgemm_128x32_8x5_nn_align1)",
        ),
        ("void rows<float, 4>(float*, int)", "rows"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 12>(float*)", "softmax_warp_forward"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(float*, int)", "cunn_SoftMaxForward"),
        ("<", "<"),
    ],
)
def test_a_kernels_name_is_told_without_its_signature(name: str, plain: str) -> None:
    assert plain_name(name) == plain
    assert profiled(4000, (name, 1, 3600)).operators[0].name == plain


@given(st.text(max_size=60))
def test_no_kernel_is_without_a_name(name: str) -> None:
    assert bool(plain_name(name).strip()) or not name.strip()


def test_a_pass_that_occurs_often_is_named_once() -> None:
    twice = ("void k<at::native::exp_kernel_cuda(int)>", 1, 900)
    report = profiled(3200, twice, twice, ("aten::sum", 1, 600), ("aten::div", 1, 800))
    assert report.findings[0].evidence.count("exp_kernel_cuda") == 1


def test_an_ncu_that_hangs_ends_within_what_is_held_so_that_it_is_paid_once() -> None:
    assert NSIGHT_S + 3 < FULL_HOLD_S < LIMIT_S


def launch(us: float, stalls: dict[str, float], *hot: str, name: str = "rows") -> Inspected:
    return Inspected(
        name=name, us=us, blocks=8, threads=128, registers=32, values={},
        stalls=tuple(Stall(reason=reason, share=share) for reason, share in stalls.items()),
        hot=tuple(HotLine(place=place, share=0.8) for place in hot),
    )  # fmt: skip


def test_what_warps_of_the_longest_launch_wait_for_is_told_in_words_with_the_hottest_line() -> None:
    longest = launch(9.0, {"long_scoreboard": 0.62, "barrier": 0.2, "wait": 0.04}, "candidate.py:17 x = tl.load(x_ptr)")
    assert told([launch(1.0, {"membar": 1.0}), longest]) == (
        "a warp of rows waits for data from global or local memory (62%), other warps at a barrier (20%), "
        "most at candidate.py:17 x = tl.load(x_ptr) (80%)"
    )


@pytest.mark.parametrize("inspected", [[], [launch(1.0, {})], [launch(1.0, {"barrier": 0.05}, "BAR.SYNC")]])
def test_where_ncu_tells_no_reason_that_matters_nothing_is_said(inspected: list[Inspected]) -> None:
    assert told(inspected) == ""


def test_a_reason_of_a_newer_ncu_is_told_by_its_name() -> None:
    assert "waits for warp_spanning (90%)" in told([launch(1.0, {"warp_spanning": 0.9})])


@given(st.text(max_size=300), st.text(max_size=300), st.floats(allow_nan=False, allow_infinity=False))
def test_whatever_a_candidate_calls_its_lines_the_sentence_is_printable_and_short(
    name: str, place: str, share: float
) -> None:
    said = told([launch(1.0, {"barrier": 0.5, name: share}, place, name=name)])
    assert (said.isprintable(), len(said) < 400) == (True, True)


def test_each_reason_is_worded_once() -> None:
    assert len(set(WORDS.values())) == len(WORDS)


def test_at_full_depth_the_summary_says_what_warps_wait_for() -> None:
    facts = ProfileFacts(
        workload=WorkloadFacts(name="w", held_out=False, bytes_in=8, bytes_out=8, flops=0), ceilings=CEILINGS,
        profile=OperatorProfile(workload="w", calls=1, call_us=9.0, operators=()), on_gpu=False,
        inspection=Inspection(kernels=(launch(9.0, {"barrier": 0.5}),)),
    )  # fmt: skip
    report = judge(facts, ChildExit(kind="finished"), ProfilePlan(depth="full"))
    assert report.summary.endswith("a warp of rows waits for other warps at a barrier (50%)")


@pytest.mark.parametrize(
    ("span_us", "busy_us", "on_gpu", "gaps_us"),
    [(50.0, 41.25, True, 8.75), (40.0, 41.0, True, 0.0), (0.0, 41.0, True, None), (50.0, 0.0, True, None),
     (50.0, 41.0, False, None)],
)  # fmt: skip
def test_the_gaps_of_a_call_are_what_its_work_leaves_of_its_wall_clock(
    span_us: float, busy_us: float, gaps_us: float | None, *, on_gpu: bool
) -> None:
    facts = ProfileFacts(
        workload=WorkloadFacts(name="w", held_out=False, bytes_in=4_000_000, bytes_out=4_000_000, flops=0),
        profile=OperatorProfile(
            workload="w", calls=1, call_us=45.0, span_us=span_us, busy_us=busy_us,
            operators=(Operator(name="k", calls=1, self_us=41.0, share=1.0),),
        ),
        ceilings=CEILINGS, on_gpu=on_gpu,
    )  # fmt: skip
    assert judge(facts, ChildExit(kind="finished"), ProfilePlan()).gaps_us == gaps_us

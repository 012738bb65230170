"""The compile tool on C++ and CUDA sources, and on what asks for a GPU where there is none; without any process."""

import pytest
from test_compile import INLINE, KERNEL, TRACE, TRITON, FakeBuilder, verdict_of

from kernelgate.budget.model import Verdict
from kernelgate.tools.compile import CompileFacts, CompilePlan, measure
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.kit.wire import ChildExit, DeviceRef


def test_kernels_of_cuda_sources_are_told_without_an_occupancy() -> None:
    kernel = KERNEL.model_copy(update={"warps": 0})
    report = verdict_of(CompileFacts(language="cuda", trace=TRACE, extensions=("own",), kernels=(kernel,)))
    assert (report.verdict, report.kernels_total, report.kernels[0].kernel.registers) == ("built", 1, 40)
    assert report.kernels[0].occupancy is None
    assert "decided at the launch" in report.notes[0]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            CompileFacts(language="cuda", fault=Fault(kind="gone", stage="load")),
            "limit of 300 s: include fewer headers",
        ),
        (CompileFacts(language="triton"), "limit of 60 s: use fewer autotune"),
        (None, "limit of 60 s (300 s with C++ or CUDA sources)"),
    ],
)
def test_a_build_that_took_too_long_is_told_its_own_limit_and_what_to_do(
    facts: CompileFacts | None, words: str
) -> None:
    report = verdict_of(facts, ChildExit(kind="cap_reached"))
    assert (report.verdict, words in report.summary) == (Verdict.build_timed_out, True)


def test_sources_in_cuda_are_built_by_the_constructor_without_a_device() -> None:
    builder = FakeBuilder(INLINE)
    builder.device = DeviceRef(kind="cuda", uid="GPU-1")
    assert "its C++ and CUDA sources with it" in verdict_of(measure(builder, CompilePlan())).summary
    assert builder.asked == ["load", "construct", "kernels"]
    builder.built = ()
    assert "no C++ or CUDA source was built yet" in verdict_of(measure(builder, CompilePlan())).summary


def test_a_binary_for_another_gpu_is_told_what_to_drop() -> None:
    error = "AcceleratorError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors"
    fault = Fault(kind="raised", stage="construct", error=error)
    summary = verdict_of(CompileFacts(fault=fault)).summary
    assert summary.startswith("it is built for another architecture than this GPU's: drop -gencode")
    assert "when constructed: AcceleratorError" in summary


NO_GPU = Fault(kind="raised", stage="load", error="RuntimeError: No CUDA GPUs are available")


@pytest.mark.parametrize("source", [TRITON, "import torch", INLINE])
def test_who_looks_for_a_gpu_when_it_is_imported_needs_one(source: str) -> None:
    builder = FakeBuilder(source, load=NO_GPU)
    builder.device = DeviceRef(kind="cuda", uid="GPU-1")
    report = verdict_of(measure(builder, CompilePlan()))
    assert (report.verdict, report.code, report.missing) == ("needs_device", None, ())
    assert "No CUDA GPUs are available" in report.summary


def test_a_torch_candidate_of_a_run_on_the_cpu_finds_no_gpu_later_either() -> None:
    assert verdict_of(measure(FakeBuilder("import torch", load=NO_GPU), CompilePlan())).verdict == "build_failed"

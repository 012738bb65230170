"""The compile tool without any process: arguments, what `measure` asks for, what `judge` concludes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from kernelgate.budget.model import VERDICTS_OF, Rung, Verdict
from kernelgate.tasks.model import Task, Workload
from kernelgate.tools.compile import (
    TOOL,
    CompileArgs,
    CompileFacts,
    CompilePlan,
    CompileReport,
    built_on_device,
    judge,
    measure,
)  # fmt: skip
from kernelgate.tools.kit.build_log import trimmed_log
from kernelgate.tools.kit.facts import Fault, Kernel, Trace, Watched
from kernelgate.tools.kit.house import DeviceBuildFacts
from kernelgate.tools.kit.kernels import KernelReport
from kernelgate.tools.kit.wire import ChildExit, DeviceRef

FINISHED = ChildExit(kind="finished")
KERNEL = Kernel(
    name="k", target="sm_90", registers=40, spill_bytes=0, shared_bytes=0, warps=8, tensor_cores=False,
    vector_loads=True,
)  # fmt: skip
TRACE = Trace(on="fake_cuda", workloads=("small", "large"), complete=True, launches=2)
TRITON = "import triton\nclass ModelNew: ..."


def arguments(**fields: Any) -> CompileArgs:
    return CompileArgs.model_validate_json(json.dumps({"run_id": "r1", **fields}))


def verdict_of(facts: CompileFacts | None, ended: ChildExit = FINISHED) -> CompileReport:
    report = judge(facts, ended, CompilePlan())
    assert report.verdict in VERDICTS_OF[Rung.compile]
    return report


class FakeBuilder:
    """A builder that answers from fields and notes what it was asked."""

    def __init__(
        self, source: str, *, languages: tuple[str, ...] = ("torch", "triton", "cuda"), load: Fault | None = None,
        trace: Trace | Fault = TRACE,
    ) -> None:  # fmt: skip
        task = {"name": "t", "title": "t", "group": "g", "source": "", "workloads": [Workload(name="w").model_dump()]}
        self.task = Task.model_validate_json(json.dumps({**task, "languages": languages}))
        self.device = DeviceRef(kind="cpu")
        self.files: Mapping[str, str] = {"candidate.py": source}
        self.asked: list[str] = []
        self.built: tuple[str, ...] = ("own",)
        self._load, self._trace = load, trace

    def load(self) -> Fault | None:
        self.asked.append("load")
        return self._load

    def trace(self) -> Trace | Fault:
        self.asked.append("trace")
        return self._trace

    def construct(self) -> Trace | Fault:
        self.asked.append("construct")
        return self._trace

    def extensions(self) -> tuple[str, ...]:
        return self.built

    def kernels(self) -> tuple[Kernel, ...]:
        self.asked.append("kernels")
        return (KERNEL,)

    def missing_programs(self) -> tuple[str, ...]:
        return ()

    def notes(self) -> tuple[str, ...]:
        return ("a note",)


def test_one_python_text_becomes_the_entry_file() -> None:
    assert arguments(source="x = 1").candidate().files == {"candidate.py": "x = 1"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "give either source .* got neither"),
        ({"source": "", "files": {"candidate.py": ""}}, "got both"),
        ({"files": {"kernel.py": ""}}, "one file must be named candidate.py"),
        ({"files": {"candidate.py": "", "../x.py": ""}}, "no folders"),
        ({"source": "x" * (1 << 19) + "x"}, "the source has 524,289 bytes; at most 524,288"),
        ({"source": "", "note": "n" * 2001}, "at most 2000"),
        ({"source": "", "up_to": "profile"}, "quick_time"),
        ({"source": "", "wait_s": 601}, "less than or equal to 600"),
        ({"source": "", "wait": 1}, "Extra inputs"),
        ({"source": "", "run_id": "x1"}, "should match pattern"),
    ],
)
def test_arguments_that_cannot_be_served_are_told_what_is_allowed(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        arguments(**fields)


def test_a_candidate_is_loaded_then_traced_then_read() -> None:
    builder = FakeBuilder(TRITON)
    facts = measure(builder, CompilePlan())
    assert builder.asked == ["load", "trace", "kernels"]
    assert (facts.language, facts.trace, facts.kernels, facts.notes) == ("triton", TRACE, (KERNEL,), ("a note",))


def test_measuring_stops_at_the_first_fault() -> None:
    fault = Fault(kind="raised", stage="load", error="SyntaxError: invalid syntax (candidate.py, line 2)")
    builder = FakeBuilder("import torch", load=fault)
    assert measure(builder, CompilePlan()).fault == fault
    assert builder.asked == ["load"]


@pytest.mark.parametrize(
    "source",
    [
        "import kernelgate",
        "def f():\n    from kernelgate.tools.worker import protocol\n",
        "import os, kernelgate.tasks as t",
        "if True: import kernelgate",
        "import importlib\nimportlib.import_module('kernelgate.tools')",
        "__import__('kernelgate')",
    ],
)
def test_a_candidate_that_imports_this_package_is_forbidden_and_never_loaded(source: str) -> None:
    builder = FakeBuilder(source)
    report = verdict_of(measure(builder, CompilePlan()))
    assert report.verdict == "forbidden"
    assert "imports kernelgate" in report.summary
    assert builder.asked == []


@pytest.mark.parametrize(
    "source",
    ["# import kernelgate", "x = 'import kernelgate'", "raise ValueError from kernelgate", "import mykernelgate"],
)
def test_a_mere_mention_of_this_package_is_allowed(source: str) -> None:
    assert measure(FakeBuilder(source), CompilePlan()).forbidden == ""


@pytest.mark.parametrize(
    ("source", "languages"), [(TRITON, ("torch",)), ("import torch", ("triton",)), ("load_inline()", ("triton",))]
)
def test_a_language_that_the_task_does_not_take_is_forbidden(source: str, languages: tuple[str, ...]) -> None:
    report = verdict_of(measure(FakeBuilder(source, languages=languages), CompilePlan()))
    assert report.verdict == "forbidden"
    assert f"this task takes {languages[0]}" in report.summary


def test_a_hidden_triton_launch_is_forbidden_where_the_task_takes_none() -> None:
    report = verdict_of(measure(FakeBuilder("import torch", languages=("torch",)), CompilePlan()))
    assert (report.verdict, report.kernels) == ("forbidden", ())


def test_the_word_triton_in_a_comment_is_no_language() -> None:
    assert measure(FakeBuilder("import torch  # no triton here"), CompilePlan()).language == "torch"


@pytest.mark.parametrize("source", ["from torch.utils.cpp_extension import load_inline", "m = load_inline(name='x')"])
def test_an_inline_extension_needs_a_device_and_is_not_loaded(source: str) -> None:
    builder = FakeBuilder(source)
    report = verdict_of(measure(builder, CompilePlan()))
    assert report.verdict == "needs_device"
    assert "GPU host only" in report.summary
    assert builder.asked == []


def test_what_was_built_is_reported_with_occupancy() -> None:
    report = verdict_of(CompileFacts(language="triton", trace=TRACE, kernels=(KERNEL,)))
    assert (report.verdict, report.traced, report.kernels_total) == ("built", ("small", "large"), 1)
    assert report.kernels[0].occupancy is not None
    assert report.kernels[0].occupancy.blocks_per_sm == 6


def test_a_kernel_whose_registers_are_unknown_gets_no_occupancy() -> None:
    unknown = KERNEL.model_copy(update={"registers": 0})
    report = verdict_of(
        CompileFacts(language="triton", trace=TRACE, kernels=(unknown,), notes=("install the toolkit",))
    )
    assert report.kernels[0].occupancy is None
    assert report.notes == ("install the toolkit",)


def test_a_kernel_for_an_architecture_without_limits_is_told_its_spills_and_what_is_unknown() -> None:
    spilling = KERNEL.model_copy(update={"target": "sm_123", "spill_bytes": 64})
    report = verdict_of(CompileFacts(language="triton", trace=TRACE, kernels=(spilling, spilling)))
    assert report.kernels[0].occupancy is None
    assert "64 bytes per thread" in report.kernels[0].advice[0]
    assert report.notes == ("occupancy on sm_123 is unknown: its limits are not in the table of this version",)


def test_of_many_kernels_those_with_advice_are_shown() -> None:
    spilling = KERNEL.model_copy(update={"spill_bytes": 64, "name": "z"})
    report = verdict_of(CompileFacts(language="triton", trace=TRACE, kernels=(*[KERNEL] * 20, spilling)))
    assert (len(report.kernels), report.kernels_total, report.kernels[0].kernel.name) == (12, 21, "z")
    assert len(report.model_dump_json()) / 4 < 2_000
    assert "12 of 21" in report.notes[0]


@pytest.mark.parametrize(
    ("ended", "fault", "verdict", "code", "words"),
    [
        (ChildExit(kind="cap_reached"), Fault(kind="gone", stage="load"), "build_timed_out", "HANG", "its limit"),
        (ChildExit(kind="exited", status=7), Fault(kind="gone", stage="load"), "build_failed", "CRASH", "status 7"),
        (ChildExit(kind="signalled", status=11), Fault(kind="gone", stage="trace"), "build_failed", "CRASH", "11"),
        (FINISHED, Fault(kind="out_of_memory", stage="trace", error="MemoryError: "), "build_failed", "OOM", "memory"),
        (FINISHED, Fault(kind="broken_protocol", stage="load", error="x"), "build_failed", "FAKE_REPORT", "channel"),
        (FINISHED, Fault(kind="raised", stage="load", error="E: line 3"), "build_failed", None, "imported: E: line 3"),
    ],
)  # fmt: skip
def test_a_fault_is_told_by_how_the_process_ended(
    ended: ChildExit, fault: Fault, verdict: str, code: str | None, words: str
) -> None:
    report = verdict_of(CompileFacts(fault=fault), ended)
    assert (report.verdict, report.code) == (verdict, code)
    assert words in report.summary


def test_a_process_that_ended_before_there_were_facts_crashed() -> None:
    report = verdict_of(None, ChildExit(kind="signalled", status=9))
    assert (report.verdict, report.code) == ("build_failed", "CRASH")


def test_a_triton_candidate_that_reads_values_needs_a_device() -> None:
    trace = Trace(
        on="fake_cuda", workloads=("small",), complete=False, needs_values=True, error="x (candidate.py line 9)"
    )
    report = verdict_of(CompileFacts(language="triton", trace=trace))
    assert (report.verdict, report.traced) == ("needs_device", ())
    assert "candidate.py line 9" in report.summary


def test_a_torch_candidate_that_reads_values_is_built_and_says_so() -> None:
    trace = Trace(on="fake_cpu", workloads=("small",), complete=False, needs_values=True, error="x")
    report = verdict_of(CompileFacts(language="torch", trace=trace))
    assert (report.verdict, report.traced) == ("built", ())
    assert "could not be followed" in report.notes[0]


def test_numbers_of_something_that_was_not_built_cannot_be_reported() -> None:
    with pytest.raises(ValidationError, match="what was compiled only"):
        CompileReport(verdict=Verdict.build_failed, summary="x", kernels=(KernelReport(kernel=KERNEL, occupancy=None),))


def test_a_traceback_keeps_the_candidates_own_frames_without_their_folders() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "/a/kernelgate/tools/worker/candidate.py", line 120, in _reply\n    child.load()\n    ^^^^^^\n'
        '  File "<frozen importlib._bootstrap>", line 241, in _call\n'
        '  File "/tmp/scratch-1/candidate/candidate.py", line 3, in <module>\n    import nothing\n'
        "ModuleNotFoundError: No module named 'nothing'"
    )
    assert trimmed_log(log) == (
        "Traceback (most recent call last):\n"
        '  File "candidate.py", line 3, in <module>\n    import nothing\n'
        "ModuleNotFoundError: No module named 'nothing'"
    )


def test_the_log_of_a_failure_is_bounded() -> None:
    fault = Fault(kind="raised", stage="load", error="E", log="x" * 4000)
    assert len(verdict_of(CompileFacts(fault=fault)).log) == 2_000


def test_the_description_is_short_and_says_what_comes_next() -> None:
    assert len(TOOL.description) < 600
    assert TOOL.description.splitlines()[0].startswith("Register a candidate and see whether it builds")
    assert "check_correctness" in TOOL.description
    assert (TOOL.rung, TOOL.first_hold_s, TOOL.limit_s) == (Rung.compile, 0.0, 60.0)


def test_a_candidate_that_needs_values_is_built_by_what_happened_on_the_device() -> None:
    waiting = CompileReport(verdict=Verdict.needs_device, summary="it reads values")
    finished = ChildExit(kind="finished")
    good = built_on_device(waiting, DeviceBuildFacts(workloads=("a", "b"), prepare_s=1.5), finished)
    assert good.verdict is Verdict.built
    assert good.traced == ("a", "b")
    assert "on the device" in good.summary
    fault = Fault(kind="raised", stage="forward", error="ValueError: no")
    assert built_on_device(waiting, DeviceBuildFacts(fault=fault), finished).verdict is Verdict.build_failed
    assert built_on_device(waiting, None, ChildExit(kind="cap_reached")).verdict is Verdict.build_timed_out
    assert built_on_device(waiting, None, ChildExit(kind="signalled", status=11)).verdict is Verdict.build_failed


LIBRARY = Trace(
    on="fake_cuda", workloads=("small",), complete=True, launches=1, operators=("mm", "add"), precisions=("bfloat16",)
)


def test_what_forward_computes_with_is_told_as_facts() -> None:
    report = verdict_of(CompileFacts(language="triton", trace=LIBRARY))
    assert report.verdict is Verdict.built
    assert (report.own_launches, report.library_calls, report.precisions) == (1, ("mm", "add"), ("bfloat16",))


def test_a_task_may_forbid_the_operators_of_the_library() -> None:
    builder = FakeBuilder(TRITON, trace=LIBRARY)
    assert measure(builder, CompilePlan()).forbidden == ""
    builder.task = builder.task.model_copy(update={"allow_library_calls": False})
    report = verdict_of(measure(builder, CompilePlan()))
    assert (report.verdict, report.code) == (Verdict.forbidden, "REFERENCE_CALL")
    assert "torch's mm, add" in report.summary


INLINE = "from torch.utils.cpp_extension import load_inline"
FORBIDS = {"allow_library_calls": False}
UNFINISHED = Trace(on="fake_cpu", workloads=("w",), complete=False, needs_values=True, error="x.item()")


@pytest.mark.parametrize(
    "builder",
    [FakeBuilder(INLINE), FakeBuilder("import torch", trace=UNFINISHED), FakeBuilder(TRITON)],
    ids=["inline CUDA", "reads a value", "a trace may have been shown something else"],
)
def test_where_it_forbids_them_a_candidate_is_run_before_it_counts_as_built(builder: FakeBuilder) -> None:
    builder.device = DeviceRef(kind="cuda", uid="GPU-1")
    assert verdict_of(measure(builder, CompilePlan())).verdict is Verdict.built
    builder.task = builder.task.model_copy(update=FORBIDS)
    waiting = verdict_of(measure(builder, CompilePlan()))
    assert (waiting.verdict, waiting.code) == (Verdict.needs_device, "REFERENCE_CALL")
    assert "must be run once" in waiting.summary
    finished, seen = ChildExit(kind="finished"), Watched(operators=("mm",), precisions=("float32",))
    caught = built_on_device(waiting, DeviceBuildFacts(watched=seen), finished, library_calls=False)
    assert (caught.verdict, caught.code) == (Verdict.forbidden, "REFERENCE_CALL")
    assert "torch's mm" in caught.summary
    assert built_on_device(waiting, DeviceBuildFacts(), finished, library_calls=False).verdict is Verdict.built
    told = built_on_device(waiting, DeviceBuildFacts(watched=seen), finished)
    assert (told.verdict, told.library_calls, told.precisions) == (Verdict.built, ("mm",), ("float32",))
    assert told.kernels == waiting.kernels, "what the trace compiled is still told"


@pytest.mark.parametrize("module", ["numpy", "scipy.special", "numba"])
def test_where_it_forbids_them_other_libraries_may_not_be_imported(module: str) -> None:
    builder = FakeBuilder(f"import math, os.path, torch, {module}\nimport helper")
    builder.files = {**builder.files, "helper.py": ""}
    assert measure(builder, CompilePlan()).forbidden == ""
    builder.task = builder.task.model_copy(update=FORBIDS)
    assert measure(builder, CompilePlan()).forbidden.startswith(f"it imports {module.partition('.')[0]};")


def test_memory_views_and_copies_are_no_library_calls() -> None:
    builder = FakeBuilder(TRITON)
    builder.task = builder.task.model_copy(update={"allow_library_calls": False})
    assert verdict_of(measure(builder, CompilePlan())).verdict is Verdict.built

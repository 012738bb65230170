"""The one-fault kernels without a GPU: right answers, binaries that show the fault and no other, and how they count."""

import functools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from coach_run import HARMLESS, Book, figures, is_right, slim, timed
from one_fault import CASES, FAULTY, OneFault
from one_fault_case import plain

from kernelgate.tasks.taskfile import task_of_folder
from kernelgate.tools.compile import CompileReport

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worker"))

from compile_host import CompileHost

PROGRAM = Path(__file__).with_name("interpreted_faults.py")
AT_LEAST = {
    "uncoalesced": 3, "narrow_loads": 2, "spills": 2, "too_few_warps": 2, "too_few_blocks": 2, "tail_wave": 1,
    "imbalance": 1, "many_passes": 2, "missed_fusion": 2, "precision": 2, "atomics": 2, "tensor_cores_unused": 2,
    "many_launches": 2, "host_time": 1, "sync": 2, "bank_conflicts": 1,
}  # fmt: skip
SCATTERED = {"strided_affine", "lanes_over_rows"}
"""Uncoalesced in their loads, which no width would help; the other one scatters its stores."""
TELLING = {
    "healthy_affine", "strided_affine", "off_by_one_half", "one_address", "spilled_norm", "tail_of_one_tile",
    "double_gelu", "broadcast_matmul",
}  # fmt: skip
"""Compiled in each run of the tests, some 1.5 s each; the others in long ones."""
OWN = [case for case in CASES if not case.on_cpu]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[OneFault], CompileReport]]:
    """Compiles a kernel for the sizes of a GPU, each once."""
    with CompileHost(tmp_path_factory.mktemp("state")) as host:

        @functools.cache
        def report(case: OneFault) -> CompileReport:
            task = case.task.task
            return host.compile(case.source, task.model_copy(update={"workloads": task.workloads[:1]})).report

        yield report


def by_cost() -> list[Any]:
    marks = dict.fromkeys(TELLING, ())
    return [pytest.param(case, marks=marks.get(case.name, pytest.mark.long), id=case.name) for case in OWN]


def named(name: str) -> OneFault:
    return next(case for case in CASES if case.name == name)


def test_each_kind_of_fault_has_its_kernels_and_some_kernels_have_none() -> None:
    counted = Counter(kind for case in FAULTY for kind in case.kinds)
    assert {kind: counted[kind] for kind in AT_LEAST if counted[kind] < AT_LEAST[kind]} == {}
    assert (set(counted) - set(AT_LEAST), len(FAULTY) >= 24, len(CASES) - len(FAULTY) >= 4) == (set(), True, True)


def test_names_and_sources_are_used_once() -> None:
    assert len({case.name for case in CASES}) == len({case.source for case in CASES}) == len(CASES)


def test_the_test_knows_the_kernels_that_it_names() -> None:
    assert {case.name for case in OWN} >= TELLING | SCATTERED


def test_no_task_has_more_kernels_than_a_run_grants_profiles() -> None:
    assert max(Counter(case.task.name for case in CASES).values()) <= 10


def test_the_server_reads_each_task_as_it_stands_in_the_table(tmp_path: Path) -> None:
    tasks = {case.task.name: case.task for case in CASES}
    for name, task in tasks.items():
        (tmp_path / name).mkdir()
        for file, text in task.files.items():
            (tmp_path / name / file).write_text(text)
    read = {name: task_of_folder(tmp_path / name, name=name, group="tests") for name in tasks}
    assert read == {name: task.task for name, task in tasks.items()}


def test_every_kernel_is_right_on_its_small_workload() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=100, check=False, env=environment
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("case", by_cost())
def test_a_binary_shows_the_fault_of_its_kernel_and_no_other(
    compiled: Callable[[OneFault], CompileReport], case: OneFault
) -> None:
    report = compiled(case)
    kernels = [built.kernel for built in report.kernels]
    assert (report.verdict, report.notes, bool(kernels)) == ("built", (), True), report.summary
    narrow = case.kinds == ("narrow_loads",) or case.name in SCATTERED
    products = "matmul" in case.task.name and case.kinds != ("tensor_cores_unused",)
    assert {
        "spills": any(kernel.spill_bytes > 0 for kernel in kernels),
        "precision": any(kernel.doubles for kernel in kernels),
        "atomics": any(kernel.atomics for kernel in kernels),
    } == {kind: kind in case.kinds for kind in ("spills", "precision", "atomics")}
    assert {kernel.vector_loads for kernel in kernels} == {not narrow}
    assert {kernel.tensor_cores for kernel in kernels} == {products}


@pytest.mark.parametrize("case", by_cost())
def test_a_multiprocessor_has_room_for_many_warps_unless_the_fault_is_that(
    compiled: Callable[[OneFault], CompileReport], case: OneFault
) -> None:
    report = compiled(case)
    occupancies = [built.occupancy for built in report.kernels]
    blocks = {0 if one is None else one.blocks_per_sm for one in occupancies}
    warps = min(0 if one is None else one.blocks_per_sm * built.kernel.warps
                for one, built in zip(occupancies, report.kernels, strict=True))  # fmt: skip
    if case.kinds == ("tail_wave",):
        assert blocks == {1}, "its waves are of one block a multiprocessor"
    else:
        assert warps >= 16 or "matmul" in case.task.name, "products keep their sums in registers"


def profile_of(*findings: tuple[str, float]) -> dict[str, Any]:
    return {"status": "ok", "findings": [{"kind": kind, "headroom": headroom} for kind, headroom in findings]}


@pytest.mark.parametrize(
    ("name", "profile", "right"),
    [
        ("strided_affine", profile_of(("uncoalesced", 4.0), ("narrow_loads", 2.0)), True),
        ("strided_affine", profile_of(("narrow_loads", 4.0), ("uncoalesced", 2.0)), False),
        ("strided_affine", profile_of(), False),
        ("strided_affine", {}, False),
        ("healthy_affine", profile_of(), True),
        ("healthy_affine", profile_of(("narrow_loads", HARMLESS - 0.01)), True),
        ("healthy_affine", profile_of(("narrow_loads", HARMLESS)), False),
        ("healthy_affine", {"status": "refused", "findings": []}, False),
    ],
)
def test_the_first_finding_decides(name: str, profile: dict[str, Any], right: bool) -> None:
    assert is_right(named(name), profile) is right


def a_profile(wall_s: float, tokens: int) -> dict[str, Any]:
    return {"profile": {"wall_s": wall_s, "lease_s": wall_s / 2, "tokens": tokens}}


def test_figures_count_what_was_run_and_leave_out_what_was_not() -> None:
    found: dict[str, Any] = {
        "kernels": {
            "one": {"kinds": ["sync"], "right": True, **a_profile(9.0, 700)},
            "other": {"kinds": ["spills"], "right": False, "error": "no time was left"},
            "good": {"kinds": [], "right": False, **a_profile(9.0, 300)},
        },
        "bundled": {"softmax": a_profile(1.0, 500), "matmul": a_profile(2.0, 900), "rmsnorm": {"error": "refused"}},
        "ncu": {
            "softmax basic": {"set": "basic", "ended": "0", "s": 9.0},
            "softmax full": {"set": "full", "ended": "ended at its limit", "s": 30.0},
        },
    }
    assert figures(found) == {
        "kernels_total": 2, "right_first": 1, "right_first_share": 0.5, "healthy_total": 1, "healthy_false": 1,
        "counters_wall_s_median": 1.5, "counters_lease_s_median": 0.75, "reply_tokens_max": 900, "ncu_basic_s": 9.0,
    }  # fmt: skip
    assert figures({}) == {}


def test_a_later_call_goes_on_where_the_file_ended(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    Book(out, 1.0, goes_on=False).keep("bundled", "softmax", a_profile(1.0, 500))
    Book(out, 1.0, goes_on=True).keep("bundled", "matmul", a_profile(3.0, 400))
    read = json.loads(out.read_text())
    assert (set(read["bundled"]), read["figures"]["counters_wall_s_median"]) == ({"softmax", "matmul"}, 2.0)
    Book(out, 1.0, goes_on=False).write()
    assert json.loads(out.read_text()) == {"figures": {}}


def test_a_measurement_keeps_no_whole_replies() -> None:
    kept = slim({"kernels": {"one": {"profile": {"tokens": 1, "report": {"log": ""}}, "quick": {"last_report": {}}}}})
    assert kept == {"kernels": {"one": {"profile": {"tokens": 1}, "quick": {}}}}


def test_a_program_that_hangs_is_ended_at_its_limit_with_all_that_it_started(tmp_path: Path) -> None:
    hanging = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(90)'])"
    told = timed([sys.executable, "-c", hanging], tmp_path, 1.0)
    assert told["ended"] == "ended at its limit"
    assert told["s"] < 30


def test_what_is_written_in_operators_alone_runs_on_a_cpu() -> None:
    assert {case.name for case in CASES if case.on_cpu} >= {"launches", "busy_host", "item", "chain_of_operators"}
    assert "triton" not in plain("def forward(self, x):\n    return x")

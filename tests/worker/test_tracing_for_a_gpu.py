"""Candidates of runs on a GPU, traced where there is none: extensions are built, and who needs a GPU is told so."""

from collections.abc import Iterator

import pytest
from compile_host import CompileHost
from test_tracing import SOFTMAX, TASK

HEAD = """
import os, torch
from torch.utils.cpp_extension import load

class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(96))
        BODY
    def forward(self, x):
        return x
"""
SOURCE = 'os.path.join(os.path.dirname(__file__), "own.cpp")'
BUILD = f'load(name="own", sources=[{SOURCE}], is_python_module=False)'


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompileHost]:
    with CompileHost(tmp_path_factory.mktemp("state")) as running:
        yield running


def extension(body: str, sources: str = 'extern "C" int twice(int x) { return 2 * x; }\n') -> dict[str, str]:
    return {"candidate.py": HEAD.replace("BODY", body), "own.cpp": sources}


def test_what_a_constructor_builds_is_built_without_the_device(host: CompileHost) -> None:
    outcome = host.compile(extension(BUILD), TASK, gpu=True)
    assert outcome.facts is not None
    assert (outcome.report.verdict, outcome.facts.extensions) == ("built", ("own",))
    assert "its C++ and CUDA sources with it" in outcome.report.summary
    assert outcome.progress == ["import", "construct", "read binaries"]


def test_what_a_compiler_refuses_in_a_constructor_fails_with_its_first_error(host: CompileHost) -> None:
    report = host.compile(extension(BUILD, "int libcuda = meta tensor;\nint y = 1;\n"), TASK, gpu=True).report
    assert report.verdict == "build_failed"
    assert "when constructed: RuntimeError: Error building extension 'own': own.cpp:1:" in report.summary
    assert "error: " in report.summary
    assert report.log.startswith("own.cpp:1:")


def test_what_a_compiler_refuses_at_import_fails_with_its_first_error(host: CompileHost) -> None:
    files = extension("pass", "int x = missing;\n")
    files["candidate.py"] += BUILD
    report = host.compile(files, TASK, gpu=True).report
    assert report.verdict == "build_failed"
    assert "when imported: RuntimeError: Error building extension 'own': own.cpp:1:9: error: " in report.summary


def test_sources_that_nothing_has_built_yet_are_not_said_to_build(host: CompileHost) -> None:
    report = host.compile(extension("pass", "no C++ at all"), TASK, gpu=True).report
    assert report.verdict == "built"
    assert "no C++ or CUDA source was built yet" in report.summary
    assert "build it in __init__" in report.notes[0]


@pytest.mark.parametrize("body", ["self.total = float(self.weight.sum())", "os.kill(os.getpid(), 11)"])
def test_a_constructor_that_needs_a_device_is_not_held_against_its_sources(host: CompileHost, body: str) -> None:
    report = host.compile(extension(f"{BUILD}\n        {body}"), TASK, gpu=True).report
    assert (report.verdict, report.summary.startswith("it builds, its C++")) == ("built", True)
    assert "could not be constructed without a GPU" in report.notes[0]


TORCH = """
import torch
AT_IMPORT
class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
    def forward(self, x):
        return x * 2
"""


@pytest.mark.parametrize(
    "line",
    [
        "assert torch.cuda.get_device_properties(0).multi_processor_count == 132",
        "assert torch.cuda.get_device_capability() == (9, 0)",
        "assert torch.cuda.is_available() and torch.cuda.device_count() == 1",
    ],
)
def test_questions_about_the_device_are_answered_in_every_language(host: CompileHost, line: str) -> None:
    assert host.compile(TORCH.replace("AT_IMPORT", line), TASK, gpu=True).report.verdict == "built"


@pytest.mark.parametrize("first", ["", "import triton\n", "from torch.utils.cpp_extension import load\n"])
@pytest.mark.parametrize("table", ['torch.zeros(4, device="cuda")', "torch.zeros(4).cuda()"])
def test_a_tensor_on_the_device_at_import_needs_a_device(host: CompileHost, first: str, table: str) -> None:
    source = TORCH.replace("AT_IMPORT", f"{first}TABLE = {table}")
    report = host.compile(source, TASK, gpu=True).report
    assert report.verdict == "needs_device"
    assert "looks for a GPU when it is imported" in report.summary


@pytest.mark.parametrize("target", ["sm_75", "sm_99", "sm_121"])
def test_an_architecture_that_is_in_no_table_is_traced_for(host: CompileHost, target: str) -> None:
    line = f"assert torch.cuda.get_device_capability() == ({target[3:-1]}, {target[-1]})"
    assert host.compile(TORCH.replace("AT_IMPORT", line), TASK, target=target, gpu=True).report.verdict == "built"


def test_a_triton_kernel_is_compiled_for_a_consumer_blackwell(host: CompileHost) -> None:
    report = host.compile(SOFTMAX, TASK, target="sm_120").report
    assert [kernel.kernel.target for kernel in report.kernels] == ["sm_120", "sm_120"]
    assert all(kernel.occupancy is not None for kernel in report.kernels)


def test_on_the_cpu_a_tensor_on_a_gpu_is_an_error(host: CompileHost) -> None:
    report = host.compile(TORCH.replace("AT_IMPORT", 'TABLE = torch.zeros(4, device="cuda")'), TASK).report
    assert report.verdict == "build_failed"

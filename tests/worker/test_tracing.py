"""Candidates traced in real processes: `candidate.serve` on one side, `builder.serve_one` on the other."""

from collections.abc import Iterator

import pytest
from compile_host import CompileHost, Outcome

from kernelgate.tasks.model import Task, Workload

REFERENCE = """
import torch

rows = 16
cols = 96

class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = torch.nn.Linear(cols, cols)
    def forward(self, x):
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.rand(rows, cols)]

def get_init_inputs():
    return [2.0]
"""
TASK = Task(
    name="softmax",
    title="softmax",
    group="test",
    source=REFERENCE,
    workloads=(
        Workload(name="small"),
        Workload(name="large", overrides={"rows": 4096, "cols": 4096}, devices=("cuda",)),
        Workload(name="secret", overrides={"rows": 7}, held_out=True),
    ),
)
HEAD = """
import torch, triton
import triton.language as tl
"""
TORCH = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
    def forward(self, x):
        BODY
"""
SOFTMAX = (
    HEAD
    + """
@triton.jit
def softmax_kernel(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + offsets, mask=offsets < cols, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * cols + offsets, value / tl.sum(value, 0), mask=offsets < cols)

class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
    def forward(self, x):
        assert x.is_cuda
        assert x.shape[0] in (16, 4096)
        y = torch.empty(x.shape, dtype=x.dtype, device="cuda")
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y * self.scale
"""
)
MATMUL = (
    HEAD
    + """
SMS = torch.cuda.get_device_properties(0).multi_processor_count

@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=4), triton.Config({"BLOCK": 128}, num_warps=8)], key=["size"]
)
@triton.jit
def matmul_kernel(a, b, c, size, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, 32)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, size, 32):
        left = tl.load(a + rows[:, None] * size + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * size + cols[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * size + cols[None, :], total)

class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
    def forward(self, x):
        assert SMS == 132
        size = 1024
        a = torch.zeros(size, size, device=x.device, dtype=torch.float16)
        c = torch.empty(size, size, device=x.device)
        grid = lambda meta: (triton.cdiv(size, meta["BLOCK"]), triton.cdiv(size, meta["BLOCK"]))
        matmul_kernel[grid](a, a.contiguous(), c, size)
        return c
"""
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompileHost]:
    with CompileHost(tmp_path_factory.mktemp("state")) as running:
        yield running


@pytest.fixture(scope="module")
def softmax(host: CompileHost) -> Outcome:
    return host.compile(SOFTMAX, TASK)


def torch_candidate(body: str) -> str:
    return TORCH.replace("BODY", body)


def test_a_triton_kernel_is_compiled_for_the_target_on_every_public_workload(softmax: Outcome) -> None:
    report = softmax.report
    assert (report.verdict, report.traced) == ("built", ("small", "large"))
    assert [kernel.kernel.name for kernel in report.kernels] == ["softmax_kernel"] * 2
    assert all(kernel.kernel.target == "sm_90" and kernel.kernel.registers > 0 for kernel in report.kernels)
    assert all(kernel.occupancy is not None and kernel.occupancy.blocks_per_sm > 0 for kernel in report.kernels)
    assert softmax.facts is not None
    assert softmax.facts.trace is not None
    assert (softmax.facts.trace.on, softmax.facts.trace.launches) == ("fake_cuda", 2)
    assert (softmax.facts.trace.operators, softmax.facts.trace.precisions) == (("mul",), ("float32",))


def test_progress_names_the_workloads_but_never_a_hidden_one(softmax: Outcome) -> None:
    assert softmax.progress == ["import", "trace small", "trace large", "read binaries"]


def test_the_same_candidate_compiles_nothing_a_second_time(host: CompileHost, softmax: Outcome) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in softmax.cache.rglob("*.cubin"))
    again = host.compile(SOFTMAX, TASK)
    assert before == sorted((path, path.stat().st_mtime_ns) for path in again.cache.rglob("*.cubin"))
    assert again.report == softmax.report


def test_an_autotuned_matmul_shows_each_configuration_and_its_tensor_cores(host: CompileHost) -> None:
    report = host.compile(MATMUL, TASK).report
    assert report.verdict == "built"
    assert sorted(kernel.kernel.warps for kernel in report.kernels) == [4, 8]
    assert all(kernel.kernel.tensor_cores and kernel.kernel.vector_loads for kernel in report.kernels)
    assert all(kernel.kernel.shared_bytes > 0 for kernel in report.kernels)


def test_an_error_in_a_kernel_fails_with_its_line_in_the_file(host: CompileHost) -> None:
    source = SOFTMAX.replace("tl.max(value, 0)", "tl.max(valu, 0)")
    line = 1 + source[: source.index("valu,")].count("\n")
    report = host.compile(source, TASK).report
    assert report.verdict == "build_failed"
    assert f"candidate.py line {line}: NameError" in report.summary
    assert "value - tl.max(valu, 0)" in report.log


def test_too_much_shared_memory_fails_as_it_would_on_the_device(host: CompileHost) -> None:
    source = MATMUL.replace('triton.Config({"BLOCK": 64}, num_warps=4), ', "").replace("num_warps=8", "num_stages=5")
    source = source.replace("tl.arange(0, 32)", "tl.arange(0, 128)").replace("size, 32)", "size, 128)")
    report = host.compile(source, TASK).report
    assert report.verdict == "build_failed"
    assert "OutOfResources: out of resource: shared memory" in report.summary


def test_a_grid_that_no_gpu_takes_fails(host: CompileHost) -> None:
    source = SOFTMAX.replace("[(x.shape[0],)]", "[(1, 70000)]")
    report = host.compile(source, TASK).report
    assert report.verdict == "build_failed"
    assert "70,000 blocks in y; a GPU takes 0 to 65,535" in report.summary


def test_a_triton_candidate_that_reads_a_value_needs_a_device(host: CompileHost) -> None:
    report = host.compile(SOFTMAX.replace("return y * self.scale", "return y / y.sum().item()"), TASK).report
    assert (report.verdict, report.traced, report.kernels) == ("needs_device", (), ())
    assert "candidate.py line 22" in report.summary


def test_a_torch_candidate_is_traced_on_the_workloads_of_its_device(host: CompileHost) -> None:
    outcome = host.compile(torch_candidate("return torch.softmax(x.to(torch.float64), -1).float() * self.scale"), TASK)
    assert (outcome.report.verdict, outcome.report.traced, outcome.report.kernels) == ("built", ("small",), ())
    assert outcome.facts is not None
    assert outcome.facts.trace is not None
    assert outcome.facts.trace.on == "fake_cpu"


@pytest.mark.parametrize(
    "body",
    [
        "return x / x.sum().item()",
        "return x[x > 0]",
        "return x if x.sum() > 0 else -x",
        "return torch.nn.Linear(96, 96).half()(x.half()).float()",
        "return torch.compile(lambda t: t * 2)(x)",
        "return x * __import__('ctypes').c_float.from_address(x.data_ptr()).value",
    ],
)
def test_what_fake_tensors_cannot_do_is_not_held_against_a_torch_candidate(host: CompileHost, body: str) -> None:
    assert host.compile(torch_candidate(body), TASK).report.verdict == "built"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return x @ torch.zeros(3, 3)", "but got [16, 96] X [3, 3]"),
        ("return softmx(x)", "NameError: name 'softmx' is not defined"),
        ("return x + 'a'", "TypeError"),
        ("raise NotImplementedError('FakeTensor')", "NotImplementedError: FakeTensor"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_plain_error_in_forward_fails_with_its_line(host: CompileHost, body: str, words: str) -> None:
    report = host.compile(torch_candidate(body), TASK).report
    assert report.verdict == "build_failed"
    assert words in report.summary
    assert "candidate.py line 8" in report.summary
    assert body in report.log


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("import torch\nclass ModelNew(:\n", None, "SyntaxError: invalid syntax (candidate.py, line 2)"),
        ("import nothing_like_it", None, "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("import torch", None, "class ModelNew"),
        ("import sys\nsys.exit(3)", None, "SystemExit: 3"),
        ("raise MemoryError", "OOM", "ran out of memory when imported"),
        ("import os\nos._exit(3)", "CRASH", "its process ended when imported, with status 3"),
        ("import os\nos.kill(os.getpid(), 11)", "CRASH", "its process ended when imported, by signal 11"),
    ],
)
def test_a_module_that_cannot_be_imported_fails(host: CompileHost, source: str, code: str | None, words: str) -> None:
    report = host.compile(source, TASK).report
    assert (report.verdict, report.code) == ("build_failed", code)
    assert words in report.summary


def test_a_candidate_that_hangs_is_timed_out(host: CompileHost) -> None:
    report = host.compile("import threading\nthreading.Event().wait(90)", TASK, cap_s=2.0).report
    assert (report.verdict, report.code) == ("build_timed_out", "HANG")


def test_a_candidate_that_writes_on_the_private_channel_is_found_out(host: CompileHost) -> None:
    source = (
        "import os, socket, stat\n"
        "for number in range(3, 64):\n"
        "    try:\n"
        "        if stat.S_ISSOCK(os.fstat(number).st_mode): os.write(number, b'\\0\\0\\0\\2{}')\n"
        "    except OSError: pass\n" + torch_candidate("return x")
    )
    report = host.compile(source, TASK).report
    assert (report.verdict, report.code) == ("build_failed", "FAKE_REPORT")


def test_a_candidate_may_import_its_own_files(host: CompileHost) -> None:
    body = torch_candidate("return halved(x)").replace("import torch", "import torch\nfrom parts import halved", 1)
    report = host.compile({"parts.py": "def halved(x):\n    return x / 2\n", "candidate.py": body}, TASK).report
    assert report.verdict == "built"


def test_another_target_is_compiled_for_in_the_same_cache(host: CompileHost, softmax: Outcome) -> None:
    task = TASK.model_copy(update={"workloads": TASK.workloads[:1]})
    report = host.compile(SOFTMAX, task, target="sm_80").report
    assert [kernel.kernel.target for kernel in report.kernels] == ["sm_80"]
    assert softmax.report.kernels_total == 2


def test_a_reference_that_fakes_cannot_follow_is_not_held_against_the_candidate(host: CompileHost) -> None:
    source = REFERENCE.replace("torch.rand(rows, cols)", "torch.rand(int(torch.ones(1).item()), cols)")
    task = Task(name="t", title="t", group="g", source=source, workloads=(Workload(name="w"),))
    report = host.compile(torch_candidate("return x"), task).report
    assert report.verdict == "built"
    assert "the reference could not be set up" in report.notes[0]

"""What the tests on a GPU share: the device, candidates for it, and calls through a real supervisor. No torch here."""

import asyncio
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from gpu_path import ROOT as ROOT

from kernelgate.server.passages import wants_more, with_more
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Candidate, Task, Tolerance, Workload
from kernelgate.tools.kit.catalogue import find_tools
from kernelgate.tools.kit.runner import SupervisorOptions, SupervisorRunner
from kernelgate.tools.kit.spec import MeasuringTool
from kernelgate.tools.kit.wire import DeviceRef, Hello, WorkerReply, WorkerRequest

CALL_LIMIT_S = 300.0


def first_gpu() -> DeviceRef | None:
    """The first GPU of this host, as nvidia-smi lists it; None where there is none."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=uuid,compute_cap", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        return None
    uuid, capability = (word.strip() for word in done.stdout.splitlines()[0].split(","))
    return DeviceRef(kind="cuda", index=0, uid=uuid, target="sm_" + capability.replace(".", ""), threads=1)


class Gpu:
    """A supervisor of one GPU; calls wait for their reply."""

    def __init__(self, device: DeviceRef, **options: Any) -> None:
        self.device = device
        # Not below a home folder: the dedicated user of the children must reach it.
        self.folder = Path(tempfile.mkdtemp(prefix="kernelgate-gpu-"))
        self.folder.chmod(0o755)
        self._ids = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner = self._do(self._make(options))

    async def _make(self, options: dict[str, Any]) -> SupervisorRunner:
        return SupervisorRunner(self.device, self.folder / "state", SupervisorOptions(**options))

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_LIMIT_S)

    def hello(self) -> Hello:
        return self._do(self._runner.hello())

    def call(self, procedure: str, task: Task, source: str | None, *, cap_s: float = 60.0, **plan: Any) -> WorkerReply:
        """Run one procedure on a candidate."""
        files = {} if source is None else {"candidate.py": source}
        request = WorkerRequest(
            request_id=next(self._ids),
            procedure=procedure,
            task=task,
            files=files,
            digest=Candidate(files=files).digest if files else "",
            plan=plan,
            device=self.device,
            lease=procedure != "compile",
            cap_s=cap_s,
            state_dir=str(self.folder / "state"),
        )
        return self._do(self._runner.run(request, lambda progress: None))

    def judged(self, procedure: str, task: Task, source: str, *, cap_s: float = 60.0, **plan: Any) -> tuple[Any, Any]:
        """Run a rung, in as many fresh processes as it wants, and judge it: (report, reply). A fault of ours raises."""
        tool = tool_of(procedure)
        reply = self.call(procedure, task, source, cap_s=cap_s, **plan)
        while wants_more(tool, tool.plan.model_validate(plan), reply):
            reply = with_more(tool, reply, self.call(procedure, task, source, cap_s=cap_s, **plan))
        if reply.fault:
            raise RuntimeError(f"{procedure}: {reply.fault}\n{reply.log}")
        return judge(procedure, reply, plan), reply

    def close(self) -> None:
        self._do(self._runner.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def tool_of(procedure: str) -> Any:
    return next(tool for tool in find_tools() if isinstance(tool, MeasuringTool) and tool.name == procedure)


def judge(procedure: str, reply: WorkerReply, plan: dict[str, Any]) -> Any:
    tool = tool_of(procedure)
    facts = None if reply.facts is None else tool.facts.model_validate_json(json.dumps(reply.facts))
    return tool.judge(facts, reply.exit, tool.plan.model_validate(plan))


def bundled(name: str) -> Task:
    return Catalogue([]).task(name)


def known_good(task: Task) -> str:
    """The reference as its own candidate."""
    return f"{task.source}\n\nModelNew = Model\n"


def forward(body: str, before: str = "") -> str:
    """A candidate of the softmax task whose `forward(self, x)` has this body."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"import torch\n{before}\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}\n"


def triton_softmax(number: int = 0) -> str:
    """A Triton softmax; each number is another source."""
    return f'''"""Softmax, one program a row. {number}"""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=inside, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, powers / tl.sum(powers, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
        return y
'''


COMPILED = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = torch.compile(lambda x: torch.softmax(x, -1))

    def forward(self, x):
        return self.fast(x)
"""


def autotuned_softmax() -> str:
    """The Triton softmax with four configurations: the first call on the device chooses."""
    tuned = "@triton.autotune([triton.Config({}, num_warps=w) for w in (2, 4, 8, 16)], key=['columns'])\n@triton.jit"
    return triton_softmax(500).replace("@triton.jit", tuned).replace(", num_warps=8)", ")")


RELU = """
import torch
BATCH, DIM = 4096, 393216
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(BATCH, DIM)]
def get_init_inputs():
    return []
"""
RELU_CANDIDATE = """
import torch
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096, num_warps=8)
        return y
"""


HOGS = {
    "a thread gives work to the device while nobody has called": """
import threading
import time

import torch


class Hog(threading.Thread):
    def __init__(self, calls):
        super().__init__(daemon=True)
        self.calls = calls

    def run(self):
        other, a = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
        end_s = time.monotonic() + 40
        with torch.cuda.stream(other), torch.no_grad():
            while time.monotonic() < end_s:
                if self.calls.query():
                    a @ a
                    other.synchronize()
                else:
                    time.sleep(0.0002)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hog = None

    def forward(self, x):
        if self.hog is None:
            self.hog = Hog(torch.cuda.current_stream())
            self.hog.start()
        return torch.relu(x)
""",
    "a kernel on one multiprocessor outlasts the calls": """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.other = None

    def forward(self, x):
        if self.other is None:
            self.other = torch.cuda.Stream()
            with torch.cuda.stream(self.other):
                torch.cuda._sleep(40_000_000_000)
        torch.cuda.synchronize = torch.cuda.current_stream().synchronize
        return torch.relu(x)
""",
}
"""The reference itself, which slows the baseline down: what is timed of `large_task` must not read faster."""


def large_task() -> Task:
    """Inputs of 6.4 GB: as large as the published problem sets have them."""
    return Task(
        name="large_relu", title="ReLU", group="tests", source=RELU, workloads=(Workload(name="original"),),
        tolerances={"float32": Tolerance(rtol=1e-5, atol=1e-6)}, distributions=("normal",),
    )  # fmt: skip


ILLEGAL_ADDRESS = """
import torch
import triton
import triton.language as tl


@triton.jit
def astray(x_ptr, far):
    tl.store(x_ptr + far, 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        astray[(1,)](x, 1 << 44)
        return torch.softmax(x, -1)
"""
TOO_MUCH_SHARED = """
import torch
import triton
import triton.language as tl


@triton.jit
def product(x_ptr, y_ptr, n, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    offsets = tl.arange(0, BLOCK)[:, None] * n + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in tl.range(0, STEPS, num_stages=8):
        total += tl.dot(tl.load(x_ptr + offsets + step * BLOCK), tl.load(x_ptr + offsets + step * BLOCK))
    tl.store(y_ptr + offsets, total)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        product[(1,)](x, y, x.shape[1], BLOCK=256, STEPS=8, num_warps=8, num_stages=8)
        return y
"""
HOSTILE: dict[str, tuple[str, tuple[str, ...], float]] = {
    "illegal address": (ILLEGAL_ADDRESS, ("crashed",), 60.0),
    "endless kernel": (forward("torch.cuda._sleep(10**13)\nreturn torch.softmax(x, -1)"), ("timed_out",), 4.0),
    "out of memory": (
        forward("return torch.softmax(torch.empty(1 << 40, device=x.device), -1)"), ("out_of_memory",), 60.0,
    ),
    "too much shared memory": (TOO_MUCH_SHARED, ("crashed", "wrong_values"), 60.0),
    "spoils its input": (
        forward("y = torch.softmax(x, -1)\nx.zero_()\nreturn y"), ("input_mutation",), 60.0,
    ),
    "wrong values": (forward("return torch.zeros_like(x)"), ("wrong_values",), 60.0),
    "on another stream": (
        forward(
            "y = torch.empty_like(x)\n"
            "with torch.cuda.stream(STREAM):\n"
            "    torch.cuda._sleep(20_000_000)\n"
            "    y.copy_(torch.softmax(x, -1))\n"
            "return y",
            "STREAM = torch.cuda.Stream()",
        ),
        ("wrong_values", "nonfinite", "suspicious"), 60.0,
    ),
    "leaves": (forward("import os\nos._exit(3)"), ("crashed",), 60.0),
}  # fmt: skip
"""Name → source, verdicts that are right, seconds until it is stopped."""

"""Tasks and candidates of `timing_quality.py`: work of a known amount, of differing speed, and bad in one way each.

All of them are bounded: loops, memory, seconds.
"""

from gpu_calls import bundled, forward, known_good, triton_softmax

from kernelgate.server.demo.script import GPU_IDEAS, IDEAS
from kernelgate.tasks.model import DeviceKind, Task, Tolerance, Workload

PERCENTS = ("0", "0.5", "1", "2", "5")
"""How much more work a candidate of `more_rows` does."""
MORE_ROWS = """
import torch
BASE, COLS = 16000, 4096
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x[: x.shape[0] * 20 // 21])
def get_inputs():
    return [torch.randn(BASE + BASE // 20, COLS)]
def get_init_inputs():
    return []
"""
COPY = """
import torch
ROWS, COLS = 4096, 4096
class Model(torch.nn.Module):
    def forward(self, x):
        return x.clone()
def get_inputs():
    return [torch.randn(ROWS, COLS)]
def get_init_inputs():
    return []
"""


def _task(name: str, source: str, on_cpu: dict[str, int]) -> Task:
    """One workload a device; on the CPU with other constants. Inputs are plain: this is about time."""
    return Task(
        name=name, title=name, group="tests", source=source, distributions=("normal",),
        workloads=(
            Workload(name="gpu", devices=("cuda",)), Workload(name="cpu", devices=("cpu",), overrides=dict(on_cpu)),
        ),
        tolerances={"float32": Tolerance(rtol=1e-5, atol=1e-6)},
    )  # fmt: skip


def more_rows_task() -> Task:
    """ReLU of the first rows of an input that has 5 % more: 0.5 GB moved, some 120 µs on an H200."""
    return _task("more_rows", MORE_ROWS, {"BASE": 2000, "COLS": 512})


def more_rows(percent: str) -> str:
    """The reference's own operation on so many percent more rows in one launch; the answer is a view of the first."""
    rows = f"rows = x.shape[0] * 20 // 21\ny = torch.relu(x[:rows + round(rows * {float(percent)} / 100)])"
    return forward(f"{rows}\nreturn y[:rows]")


def first_workload(name: str, kind: DeviceKind) -> Task:
    """A bundled task with its first public workload on a kind of device alone."""
    task = bundled(name)
    first = task.workloads_on(kind, held_out=False)[:1]
    return task.model_copy(update={"name": f"{name}_first", "workloads": first})


def repeated(kind: DeviceKind) -> dict[str, tuple[Task, str]]:
    """Candidate → its task and source: the bundled softmax, and a small one whose calls take a few µs."""
    source = triton_softmax() if kind == "cuda" else forward("return torch.softmax(x, -1)")
    small = Workload(name="small", overrides={"ROWS": 1024, "COLS": 1024} if kind == "cuda" else {"ROWS": 64})
    softmax = bundled("softmax")
    return {
        "softmax": (softmax, source),
        "softmax_small": (softmax.model_copy(update={"name": "softmax_small", "workloads": (small,)}), source),
    }


_FUSED = {
    "cross_entropy": "return torch.nn.functional.cross_entropy(*inputs, reduction='none')",
    "layernorm_residual": "x = inputs[0] + inputs[1]\n"
    "return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.epsilon)",
    "linear_gelu": "return torch.nn.functional.gelu(self.linear(inputs[0]), approximate='tanh')",
    "matmul": "a, b = inputs\nhalf = a.shape[0] // 2\nreturn torch.cat([a[:half] @ b, a[half:] @ b])",
    "rmsnorm": "x, = inputs\nreturn torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.epsilon)",
    "softmax": "return torch.softmax(inputs[0], -1)",
}
_TWICE = "Model.forward(self, *inputs)\nreturn Model.forward(self, *inputs)"
_A_COPY_FIRST = "return Model.forward(self, inputs[0].clone(), *inputs[1:])"


def _in_place_of(task: Task, body: str) -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"{task.source}\n\nclass ModelNew(Model):\n    def forward(self, *inputs):\n{lines}\n"


def differing(task: Task, kind: DeviceKind) -> dict[str, str]:
    """Name → a right candidate of a bundled task; as fast, slower, much slower, and most often faster ones."""
    found = {
        "itself": known_good(task),
        "a_copy_first": _in_place_of(task, _A_COPY_FIRST),
        "twice": _in_place_of(task, _TWICE),
        "other_operators": _in_place_of(task, _FUSED[task.name]),
    }
    if kind == "cuda":
        softmax = next(idea for idea in IDEAS if idea.name == "08_triton")
        found["triton"] = GPU_IDEAS.get(task.name, softmax).source
    return found


def _stateful(body: str) -> str:
    """A softmax candidate that knows how often it was called and may keep memory."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return (
        "import time\n\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.calls, self.kept = 0, []\n\n"
        f"    def forward(self, x):\n        self.calls += 1\n{lines}\n        return torch.softmax(x, -1)\n"
    )


GROWS = _stateful("for _ in range(min(self.calls // 4, 40)):\n    torch.softmax(x, -1)")
"""Each four calls one softmax more, up to forty."""
SECONDS = _stateful("torch.cuda._sleep(6_000_000_000) if x.is_cuda else time.sleep(3)")
HOARDS = _stateful(
    "size = (64 << 20) if x.is_cuda else (1 << 20)\nif len(self.kept) < 64:\n"
    "    self.kept.append(torch.ones(size, dtype=torch.uint8, device=x.device))"
)
"""64 MiB more with each call, up to 4 GiB; on the CPU 64 MiB in all."""


def bad(kind: DeviceKind) -> dict[str, tuple[Task, str, tuple[str, ...]]]:
    """Name → task, candidate, and the tools that are asked."""
    softmax, copy = first_workload("softmax", kind), _task("copy", COPY, {"ROWS": 256, "COLS": 256})
    timings = ("quick_time", "precise_time")
    return {
        "grows": (softmax, GROWS, timings),
        "input_view": (copy, forward("return x.view_as(x)"), timings),
        "empty": (softmax, forward("return torch.empty_like(x)"), timings),
        "seconds": (softmax, SECONDS, timings),
        "hoards": (softmax, HOARDS, timings),
        "loaded": (softmax, known_good(softmax), ("precise_time",)),
    }


LOAD_S = 8
LOADS: dict[DeviceKind, str] = {
    "cuda": (
        "import torch, time\nx = torch.rand(4096, 4096, device='cuda')\ntorch.cuda.synchronize()\n"
        f"print('here', flush=True)\nend = time.time() + {LOAD_S}\n"
        "while time.time() < end:\n    for _ in range(20): y = x @ x\n    torch.cuda.synchronize()\n"
    ),
    "cpu": f"import time\nprint('here', flush=True)\nend = time.time() + {LOAD_S}\nwhile time.time() < end: pass\n",
}
"""What another process does to the device meanwhile."""

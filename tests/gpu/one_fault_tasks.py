"""The tasks of the one-fault kernels: small references whose candidates are easy to get right and to slow down.

Each has one workload for a GPU, sized so that a good kernel of an H200 takes some 10 to 250 µs, and a small one for the
CPU, on which Triton's interpreter runs the same candidates. No torch here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kernelgate.tasks.model import Distribution, Precision, Task, Workload

DISTRIBUTIONS: Final[tuple[Distribution, ...]] = ("normal", "uniform")
"""Enough to tell wrong answers; the others would only lengthen each check."""


@dataclass(frozen=True)
class FaultTask:
    """A reference in KernelBench's form; the constants in it are those of the GPU."""

    name: str
    source: str
    on_cpu: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    """Constant → its value on the CPU."""
    precision: Precision = "ieee"

    @property
    def task(self) -> Task:
        """As the product reads it from the folder that `files` fills."""
        return Task(
            name=self.name, title=self.name.replace("_", " "), group="tests", source=self.source,
            distributions=DISTRIBUTIONS, precision=self.precision,
            workloads=(
                Workload(name="gpu", devices=("cuda",)),
                Workload(name="cpu", devices=("cpu",), overrides=dict(self.on_cpu)),
            ),
        )  # fmt: skip

    @property
    def files(self) -> dict[str, str]:
        """Name → text of what stands in its folder below `--tasks`."""
        distributions = ", ".join(f'"{name}"' for name in DISTRIBUTIONS)
        constants = "\n".join(f"{name} = {value}" for name, value in self.on_cpu.items())
        toml = (
            f'title = "{self.name.replace("_", " ")}"\nprecision = "{self.precision}"\n'
            f"distributions = [{distributions}]\n\n"
            '[[workload]]\nname = "gpu"\ndevices = ["cuda"]\n\n'
            f'[[workload]]\nname = "cpu"\ndevices = ["cpu"]\n[workload.set]\n{constants}\n'
        )
        return {"reference.py": self.source, "task.toml": toml}


def _source(constants: str, forward: str, inputs: str, arguments: str = "x") -> str:
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    return (
        f"import torch\n\n{constants}\n\n\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, {arguments}):\n{lines}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def _matrix(forward: str, rows: int, columns: int) -> str:
    return _source(f"ROWS = {rows}\nCOLS = {columns}", forward, "torch.randn(ROWS, COLS)")


def _product(m: int, n: int, k: int) -> str:
    half = "dtype=torch.float16"
    inputs = f"torch.randn(M, K, {half}), torch.randn(K, N, {half})"
    return _source(f"M = {m}\nN = {n}\nK = {k}", "return a @ b", inputs, "a, b")


_SMALL: Final = {"ROWS": 24, "COLS": 128}
_HORNER: Final = """t = x / (1 + x.abs())
one = torch.ones_like(t)
p = one
for _ in range(STEPS):
    p = torch.addcmul(one, p, t)
return p"""
_SOFTMAX: Final = "return torch.softmax(x, -1)"
_TILES: Final = "return x.view(-1, 128, 32).transpose(1, 2).contiguous()"

AFFINE: Final = FaultTask("affine", _matrix("return x * 2 + 1", 8192, 4096), _SMALL)
"""0.27 GB moved."""
ROW_SUM: Final = FaultTask("row_sum", _matrix("return x.sum(-1)", 1 << 19, 64), {"ROWS": 40, "COLS": 64})
TRANSPOSE: Final = FaultTask("transpose", _matrix("return x.t().contiguous()", 8192, 4096), {"ROWS": 24, "COLS": 64})
TILES: Final = FaultTask("transposed_tiles", _matrix(_TILES, 8192, 4096), {"ROWS": 2, "COLS": 4096})
HALF_AFFINE: Final = FaultTask(
    "half_affine",
    _source(f"SIZE = {1 << 26}", "return x * 2 + 1", "torch.randn(SIZE, dtype=torch.float16)"),
    {"SIZE": 5000},
)
HALF_SHIFTED: Final = FaultTask(
    "half_shifted",
    _source(f"SIZE = {(1 << 26) + 1}", "return x[1:] * 2 + 1", "torch.randn(SIZE, dtype=torch.float16)"),
    {"SIZE": 5001},
)
SOFTMAX: Final = FaultTask("short_softmax", _matrix(_SOFTMAX, 16384, 2048), {"ROWS": 6, "COLS": 2048})
LONG_SOFTMAX: Final = FaultTask("long_softmax", _matrix(_SOFTMAX, 2048, 32768), {"ROWS": 3, "COLS": 32768})
"""0.27 GB: as many rows as are worked on at once are several times the L2."""
LONG_NORM: Final = FaultTask(
    "long_norm",
    _matrix("return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)", 2048, 32768),
    {"ROWS": 3, "COLS": 32768},
)
GELU: Final = FaultTask("exact_gelu", _matrix("return torch.nn.functional.gelu(x)", 8192, 4096), _SMALL)
HORNER: Final = FaultTask(
    "horner",
    _source(f"SIZE = {133 * 16384}\nSTEPS = 512", _HORNER, "torch.randn(SIZE)"),
    {"SIZE": 20000},
)
"""512 dependent multiply-adds for each element: arithmetic alone. The answer is near 1 / (1 - t)."""
HALF_MATMUL: Final = FaultTask("half_matmul", _product(2048, 2048, 512), {"M": 128, "N": 256, "K": 64})
LARGE_MATMUL: Final = FaultTask("large_half_matmul", _product(4096, 4096, 4096), {"M": 128, "N": 256, "K": 128})
RAGGED_MATMUL: Final = FaultTask("ragged_half_matmul", _product(17 * 128, 8 * 256, 4096), {"M": 128, "N": 256, "K": 64})
"""136 tiles of 128 x 256."""
HISTOGRAM: Final = FaultTask(
    "histogram",
    _source(
        f"SIZE = {1 << 22}",
        "bins = torch.arange(32, dtype=x.dtype, device=x.device)\n"
        "return (x[:, None] == bins).sum(0, dtype=torch.int32)",
        "torch.randint(0, 32, (SIZE,), dtype=torch.int32)",
    ),
    {"SIZE": 3000},
)
TOTAL: Final = FaultTask(
    "total",
    _source(
        f"SIZE = {1 << 22}",
        "return x.sum(dtype=torch.int32).reshape(1)",
        "torch.randint(0, 100, (SIZE,), dtype=torch.int32)",
    ),
    {"SIZE": 3000},
)
SMALL_SIGMOID: Final = FaultTask(
    "small_sigmoid", _matrix("return torch.sigmoid(x)", 64, 16384), {"ROWS": 64, "COLS": 256}
)
BY_PEAK: Final = FaultTask("by_peak", _matrix("return x / x.abs().max()", 512, 2048), _SMALL)

"""Kernels of the streams that normalise rows. RMSNorm and LayerNorm differ in what is read and in what is taken off."""

from dataclasses import dataclass
from string import Template
from typing import Final

HEAD: Final = "import torch\nimport triton\nimport triton.language as tl\n\n\n"


@dataclass(frozen=True)
class Norm:
    """What tells one norm from the other."""

    name: str
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    centres: bool

    def values(self) -> dict[str, str]:
        """For the templates: read, centre, finish."""
        given = (*self.inputs, *self.weights)
        zeros = {"weight": "ones", "bias": "zeros"}
        return {
            "NAME": self.name,
            "POINTERS": ", ".join(f"{one}_ptr" for one in (*given, "y")),
            "INPUTS": ", ".join(self.inputs),
            "CONTIGUOUS": ", ".join(f"{one}.contiguous()" for one in self.inputs),
            "GIVEN": ", ".join([*self.inputs, *(f"self.{one}" for one in self.weights), "y"]),
            "INIT": "".join(
                f"        self.{one} = torch.nn.Parameter(torch.{zeros[one]}(columns))\n" for one in self.weights
            ),
            "FINISH": " + ".join(("x * scale * weight", *self.weights[1:])),
            "FINISH_TILE": " + ".join(("x * scale[:, None] * weight[None, :]", *("bias[None, :]",) * self.centres)),
        }

    def read(self, at: str, mask: str, indent: int = 4) -> str:
        """Lines that leave the row's elements in x."""
        lines = [f"tl.load({one}_ptr + {at}, mask={mask}, other=0.0)" for one in self.inputs]
        return "".join(f"{' ' * indent}x {'+=' if number else '='} {line}\n" for number, line in enumerate(lines))

    def read_weights(self, at: str, mask: str, indent: int = 4) -> str:
        """Lines that read what each column has of its own."""
        return "".join(
            f"{' ' * indent}{one} = tl.load({one}_ptr + {at}, mask={mask}, other=0.0)\n" for one in self.weights
        )

    def centre(self, mask: str, axis: int = 0, indent: int = 4) -> str:
        """Lines that take the mean off, where this norm does."""
        mean = f"tl.sum(x, axis={axis})" + ("[:, None]" if axis else "")
        return f"{' ' * indent}x = tl.where({mask}, x - {mean} / columns, 0.0)\n" if self.centres else ""


RMS: Final = Norm("rmsnorm", ("x",), ("weight",), centres=False)
LAYER: Final = Norm("layernorm", ("x", "residual"), ("weight", "bias"), centres=True)
MODEL: Final = """

class ModelNew(torch.nn.Module):
    def __init__(self, columns, epsilon):
        super().__init__()
${INIT}        self.epsilon = epsilon

    def forward(self, $INPUTS):
        $INPUTS = $CONTIGUOUS
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        $LAUNCH
        return y
"""
SCALE: Final = "scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + epsilon)\n"


def _whole(norm: Norm, body: str, launch: str, **more: object) -> str:
    values = norm.values() | {name: str(value) for name, value in more.items()}
    filled = Template(HEAD + body + MODEL).substitute(values | {"LAUNCH": launch})
    return Template(filled).substitute(values)


def row(norm: Norm, warps: object = 4) -> str:
    """A program for each row, the row in registers."""
    body = (
        "@triton.jit\ndef ${NAME}_rows($POINTERS, columns, epsilon, BLOCK: tl.constexpr):\n"
        "    start = tl.program_id(0).to(tl.int64) * columns\n    at = tl.arange(0, BLOCK)\n    inside = at < columns\n"
        + norm.read("start + at", "inside")
        + norm.centre("inside")
        + f"    {SCALE}"
        + norm.read_weights("at", "inside")
        + "    tl.store(y_ptr + start + at, $FINISH, mask=inside)\n"
    )
    return _whole(norm, body, f"${{NAME}}_rows[(rows,)]($GIVEN, columns, self.epsilon, BLOCK=block, num_warps={warps})")


def tile(norm: Norm, count: int, warps: int) -> str:
    """So many rows a program."""
    body = (
        "@triton.jit\ndef ${NAME}_tile($POINTERS, rows, columns, epsilon, R: tl.constexpr, BLOCK: tl.constexpr):\n"
        "    row = tl.program_id(0) * R + tl.arange(0, R)\n    at = tl.arange(0, BLOCK)\n"
        "    inside = (row < rows)[:, None] & (at < columns)[None, :]\n"
        "    place = row.to(tl.int64)[:, None] * columns + at[None, :]\n"
        + norm.read("place", "inside")
        + norm.centre("inside", axis=1)
        + "    scale = tl.rsqrt(tl.sum(x * x, axis=1) / columns + epsilon)\n"
        + norm.read_weights("at", "at < columns")
        + "    tl.store(y_ptr + place, $FINISH_TILE, mask=inside)\n"
    )
    launch = (
        "${NAME}_tile[(triton.cdiv(rows, $R),)]($GIVEN, rows, columns, self.epsilon, R=$R, BLOCK=block, num_warps=$W)"
    )
    return _whole(norm, body, launch, R=count, W=warps)


def loop(norm: Norm, block: int, warps: int, stages: int = 1) -> str:
    """A row in pieces: once for each sum, once for the answer."""
    trip = (
        "    for first in tl.range(0, columns, BLOCK, num_stages=STAGES):\n        at = first + tl.arange(0, BLOCK)\n"
    )
    read = norm.read("start + at", "at < columns", 8)
    off = "        x = tl.where(at < columns, x - mean, 0.0)\n" if norm.centres else ""
    mean = (
        "    total = tl.zeros((BLOCK,), tl.float32)\n" + trip + read + "        total += x\n"
        "    mean = tl.sum(total, axis=0) / columns\n"
        if norm.centres
        else ""
    )
    body = (
        "@triton.jit\ndef ${NAME}_loop($POINTERS, columns, epsilon, BLOCK: tl.constexpr, STAGES: tl.constexpr):\n"
        "    start = tl.program_id(0).to(tl.int64) * columns\n" + mean
        + "    squares = tl.zeros((BLOCK,), tl.float32)\n" + trip + read + off + "        squares += x * x\n"
        "    scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + epsilon)\n" + trip + read + off
        + norm.read_weights("at", "at < columns", 8)
        + "        tl.store(y_ptr + start + at, $FINISH, mask=at < columns)\n"
    )  # fmt: skip
    launch = "${NAME}_loop[(rows,)]($GIVEN, columns, self.epsilon, BLOCK=$B, STAGES=$S, num_warps=$W)"
    return _whole(norm, body, launch, B=block, S=stages, W=warps).replace(
        "        block = triton.next_power_of_2(columns)\n", ""
    )


def persistent(norm: Norm, waves: int, stages: int = 1, warps: object = 8) -> str:
    """A few programs a multiprocessor, each with the weights in registers, row after row."""
    body = (
        "@triton.jit\n"
        "def ${NAME}_persistent($POINTERS, rows, columns, epsilon, BLOCK: tl.constexpr, STAGES: tl.constexpr):\n"
        "    at = tl.arange(0, BLOCK)\n    inside = at < columns\n"
        + norm.read_weights("at", "inside")
        + "    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):\n"
        "        start = columns.to(tl.int64) * row\n"
        + norm.read("start + at", "inside", 8)
        + norm.centre("inside", indent=8)
        + f"        {SCALE}"
        + "        tl.store(y_ptr + start + at, $FINISH, mask=inside)\n"
    )
    launch = (
        "programs = min(rows, 132 * $P)\n        ${NAME}_persistent[(programs,)](\n"
        "            $GIVEN, rows, columns, self.epsilon, BLOCK=block, STAGES=$S, num_warps=$W\n        )"
    )
    return _whole(norm, body, launch, P=waves, S=stages, W=warps)


def two_kernels(norm: Norm, block: int) -> str:
    """Sums of a row in one kernel, the answer in another that knows nothing of rows but their sums."""
    pointers = ", ".join(f"{one}_ptr" for one in norm.inputs)
    weights = ", ".join(f"{one}_ptr" for one in norm.weights)
    body = (
        f"@triton.jit\ndef row_sums({pointers}, mean_ptr, scale_ptr, columns, epsilon, BLOCK: tl.constexpr):\n"
        "    row = tl.program_id(0).to(tl.int64)\n    at = tl.arange(0, BLOCK)\n    inside = at < columns\n"
        + norm.read("row * columns + at", "inside")
        + ("    mean = tl.sum(x, axis=0) / columns\n" if norm.centres else "    mean = 0.0\n")
        + "    x = tl.where(inside, x - mean, 0.0)\n    tl.store(mean_ptr + row, mean)\n"
        "    tl.store(scale_ptr + row, tl.rsqrt(tl.sum(x * x, axis=0) / columns + epsilon))\n\n\n"
        f"@triton.jit\n"
        f"def apply({pointers}, {weights}, mean_ptr, scale_ptr, y_ptr, columns, count, BLOCK: tl.constexpr):\n"
        f""
        "    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n"
        "    row, column = at // columns, at % columns\n"
        + norm.read("at", "at < count")
        + "    x -= tl.load(mean_ptr + row, mask=at < count)\n    scale = tl.load(scale_ptr + row, mask=at < count)\n"
        + norm.read_weights("column", "at < count")
        + "    tl.store(y_ptr + at, $FINISH, mask=at < count)\n"
    )
    given = ", ".join(f"self.{one}" for one in norm.weights)
    launch = (
        "mean = torch.empty(rows, dtype=x.dtype, device=x.device)\n        scale = torch.empty_like(mean)\n"
        "        row_sums[(rows,)]($INPUTS, mean, scale, columns, self.epsilon, BLOCK=block, num_warps=8)\n"
        "        count = x.numel()\n"
        "        blocks = triton.cdiv(count, $B)\n"
        f"        apply[(blocks,)]($INPUTS, {given}, mean, scale, y, columns, count, BLOCK=$B, num_warps=2)"
    )
    return _whole(norm, body, launch, B=block)


def by_lane(norm: Norm) -> str:
    """A lane for each row, eight columns a trip."""
    read = norm.read("start + first", "inside", 8)
    trip = (
        "    for first in range(0, columns, 8):\n        inside = here & (first + tl.arange(0, 8) < columns)[None, :]\n"
    )
    body = (
        "@triton.jit\ndef ${NAME}_by_lane($POINTERS, rows, columns, epsilon):\n"
        "    row = tl.program_id(0) * 32 + tl.arange(0, 32)\n    here = (row < rows)[:, None]\n"
        "    start = row.to(tl.int64)[:, None] * columns + tl.arange(0, 8)[None, :]\n"
        "    mean = tl.zeros((32,), tl.float32)\n"
        + (trip + read + "        mean += tl.sum(x, axis=1) / columns\n" if norm.centres else "")
        + "    square = tl.zeros((32,), tl.float32)\n" + trip + read
        + "        x = tl.where(inside, x - mean[:, None], 0.0)\n        square += tl.sum(x * x, axis=1)\n"
        "    scale = tl.rsqrt(square / columns + epsilon)\n" + trip + read + "        x -= mean[:, None]\n"
        "        column = first + tl.arange(0, 8)\n" + norm.read_weights("column", "column < columns", 8)
        + "        tl.store(y_ptr + start + first, $FINISH_TILE, mask=inside)\n"
    )  # fmt: skip
    launch = "${NAME}_by_lane[(triton.cdiv(rows, 32),)]($GIVEN, rows, columns, self.epsilon, num_warps=1)"
    return _whole(norm, body, launch).replace("        block = triton.next_power_of_2(columns)\n", "")

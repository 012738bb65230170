"""The stream of the linear layer with its GELU: unfused, fused, then on tensor cores without loss of precision."""

from string import Template
from typing import Final

from product_kernels import FLAT, PLACE, TILE, kernel, persistent, tile
from stream_core import Idea, Notebook

BIAS: Final = "    total += tl.load(bias_ptr + columns, mask=columns < N, other=0.0)\n"
GELU: Final = "    total = total * tl.sigmoid(1.5957691216057308 * (total + 0.044715 * total * total * total))\n"
MODEL: Final = """

class ModelNew(torch.nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features)

    def forward(self, x):
        x, weight = x.contiguous(), $WEIGHT
        (rows, depth), columns = x.shape, self.linear.out_features
        y = x.new_empty(rows, columns)
        grid = $GRID
        linear_gelu[grid](x, weight, y, self.linear.bias, rows, columns, K=depth, $TILE)
        return y
"""
ELEMENTWISE: Final = """

@triton.jit
def gelu(y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < count)
    y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    tl.store(y_ptr + at, y, mask=at < count)
"""
Sizes = tuple[int, ...]
"""Rows, columns and depth of a tile, warps, stages, and perhaps how many rows of tiles go together."""
GRID: Final = "(triton.cdiv(rows, {}) * triton.cdiv(columns, {}),)"


def text_of(dot: str, *, rows_of_weight: bool = True, gelu: str = GELU, form: str = TILE) -> str:
    """The kernel; `rows_of_weight` where the weight comes as the layer has it, [N, K]."""
    return kernel(
        dot=dot, transposed=rows_of_weight, name="linear_gelu", extra="bias_ptr, ", epilogue=BIAS + gelu, form=form
    )


def candidate(sizes: Sizes, dot: str, *, rows_of_weight: bool = True, text: str = "", grid: str = "") -> str:
    """A source; `text` where the kernel is not the usual one."""
    model = Template(MODEL).substitute(
        WEIGHT="self.linear.weight" if rows_of_weight else "self.linear.weight.t().contiguous()",
        TILE=tile(*sizes), GRID=grid or GRID.format(*sizes[:2]),
    )  # fmt: skip
    return (text or text_of(dot, rows_of_weight=rows_of_weight)) + model


def ideas() -> list[Idea]:
    book = Notebook("linear_gelu")
    _in_full(book)
    _on_tensor_cores(book)
    _near_the_top(book)
    _unbuilt(book)
    _wrong(book)
    _wrong_in_precision(book)
    _slow_and_raising(book)
    _repeats(book)
    return book.ideas()


def _in_full(book: Notebook) -> None:
    flat = text_of("ieee", gelu="", form=TILE.replace("    pid = tl.program_id(0)\n" + PLACE, FLAT)) + ELEMENTWISE
    grid = "(triton.cdiv(rows, {}), triton.cdiv(columns, {}))"
    apart = candidate((64, 64, 32, 4, 3), "ieee", text=flat, grid=grid.format(64, 64))
    launch = "        gelu[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)\n        return y"
    apart = apart.replace("        return y", launch)
    book.add("apart", apart, "The linear layer in tiles, GELU in a second kernel.")
    fused = text_of("ieee", form=TILE.replace("    pid = tl.program_id(0)\n" + PLACE, FLAT))
    source = candidate((64, 64, 32, 4, 3), "ieee", text=fused, grid=grid.format(64, 64))
    book.add("fused", source, "GELU while the tile is in registers: one pass less.", parent="apart")
    book.add("group64", candidate((64, 64, 32, 4, 3), "ieee"), "Tiles in groups: weight stays in L2.", parent="fused")
    note = "Weight transposed first: rows of it are read in order, no bank conflicts."
    source = candidate((64, 64, 32, 4, 3), "ieee", rows_of_weight=False)
    book.add("w64", source, note, parent="group64")
    source = candidate((128, 64, 16, 8, 3), "ieee", rows_of_weight=False)
    book.add("w128x64", source, "128 x 64, shallow steps.", parent="w64")
    source = candidate((128, 128, 16, 8, 3), "ieee", rows_of_weight=False)
    book.add("w128", source, "128 x 128.", parent="w128x64")
    source = candidate((64, 128, 16, 8, 3), "ieee", rows_of_weight=False)
    book.add("w64x128", source, "64 x 128.", parent="w128x64")
    kept = (
        ("        self.linear = torch", "        self.packed = None\n        self.linear = torch"),
        (
            "x, weight = x.contiguous(), self.linear.weight.t().contiguous()",
            "x = x.contiguous()\n        if self.packed is None:\n"
            "            self.packed = self.linear.weight.detach().t().contiguous()",
        ),
        ("(x, weight, y", "(x, self.packed, y"),
    )
    book.add("packed", book.edited("w128x64", *kept), "Transpose the weight once.", parent="w128x64")
    text = persistent(dot="ieee", name="linear_gelu", extra="bias_ptr, ", epilogue=BIAS + GELU)
    grid = "(min(132, triton.cdiv(rows, 128) * triton.cdiv(columns, 64)),)"
    source = candidate((128, 64, 16, 8, 3), "ieee", rows_of_weight=False, text=text, grid=grid)
    book.add("persistent", source, "Persistent programs.", parent="w128x64")


def _on_tensor_cores(book: Notebook) -> None:
    note = "Three TF32 products of tensor cores, as the compiler splits them: precision of float32."
    book.add("x64", candidate((64, 64, 32, 4, 3), "tf32x3"), note, parent="group64")
    book.add("x128x64", candidate((128, 64, 32, 4, 3), "tf32x3"), "128 x 64.", parent="x64")
    book.add("x128", candidate((128, 128, 32, 8, 3), "tf32x3"), "128 x 128, 8 warps.", parent="x128x64")
    note = "Six products in bfloat16: twice the rate of TF32, half the bytes."
    book.add("six128", candidate((128, 128, 32, 8, 3), "bf16x6"), note, parent="x128", shown="precision")
    note = "Split by hand, the rests in a sum of their own."
    book.add("s128", candidate((128, 128, 32, 8, 3), "split_finite"), note, parent="x128")
    note = "Split by hand, one sum: fewer registers."
    book.add("o128", candidate((128, 128, 32, 8, 3), "one_sum_finite"), note, parent="s128")


def _near_the_top(book: Notebook) -> None:
    def near(name: str, sizes: Sizes, note: str, parent: str, dot: str = "tf32x3") -> None:
        shown = "precision" if dot == "bf16x6" else "smallest"
        book.add(name, candidate(sizes, dot), note, parent=parent, meant="near", shown=shown)

    near("x128s2", (128, 128, 32, 8, 2), "Two stages.", "x128")
    near("x128s4", (128, 128, 32, 8, 4), "Four stages.", "x128")
    near("x128g4", (128, 128, 32, 8, 3, 4), "Groups of four.", "x128")
    near("x128g16", (128, 128, 32, 8, 3, 16), "Groups of sixteen.", "x128g4")
    near("x128x256", (128, 256, 32, 8, 2), "128 x 256: fewer reads of x.", "x128")
    near("x64x128", (64, 128, 32, 4, 3), "64 x 128.", "x128x64")
    near("six128s2", (128, 128, 32, 8, 2), "Six products, two stages.", "six128", "bf16x6")
    near("six128k64", (128, 128, 64, 8, 2), "Six products, deep steps.", "six128s2", "bf16x6")
    near("o128s4", (128, 128, 32, 8, 4), "One sum, four stages.", "o128", "one_sum_finite")
    near("o128x64", (128, 64, 32, 4, 3), "One sum, 128 x 64.", "o128", "one_sum_finite")


def _unbuilt(book: Notebook) -> None:
    bad = {"meant": "unbuilt"}
    tanh = (
        "total * tl.sigmoid(1.5957691216057308 * (total + 0.044715 * total * total * total))",
        "0.5 * total * (1 + tl.tanh(0.7978845608028654 * (total + 0.044715 * total * total * total)))",
    )
    book.stray("tanh", book.edited("group64", tanh), "tanh as the reference has it.", parent="fused", **bad)
    source = book.edited("fused", ("    def forward(self, x):", "     def forward(self, x):"))
    book.stray("indent", source, "Tidy up.", parent="fused", **bad)
    source = book.edited(
        "w128x64", (BIAS, "    total += tl.load(bias_ptr + column + tl.arange(0, BN), mask=columns < N)[:, None]\n")
    )
    book.stray("bias_shape", source, "Bias as a vector.", parent="w128x64", **bad)
    note = "256 x 128, deep steps, four stages."
    book.stray("shared", candidate((256, 128, 64, 8, 4), "tf32x3"), note, parent="x128", **bad)
    source = book.edited("x128x64", ("num_warps=4", "num_warps=6"))
    book.stray("six_warps", source, "Six warps: 43 rows each.", parent="x128x64", **bad)
    source = book.edited("w64x128", ("y, self.linear.bias, rows", "y, rows"))
    book.stray("argument", source, "The bias can be added by the layer.", parent="w64x128", **bad)


def _wrong(book: Notebook) -> None:
    bad, odd = {"meant": "wrong"}, {"meant": "wrong", "shown": "odd"}
    erf = (GELU, "    total = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))\n")
    book.stray("erf", book.edited("fused", erf), "GELU is half of 1 + erf.", parent="fused", **bad)
    once = (GELU, GELU.replace("1.5957691216057308", "0.7978845608028654"))
    book.stray("half_slope", book.edited("group64", once), "A sigmoid for the tanh.", parent="group64", **bad)
    digit = (GELU, GELU.replace("0.044715", "0.04715"))
    book.stray("digit", book.edited("w64", digit), "The cubic term by Horner next.", parent="w64", **bad)
    source = book.edited("x64", (BIAS, ""))
    book.stray("no_bias", source, "The bias is small: does it matter?", parent="x64", **bad)
    source = book.edited(
        "w128x64",
        ("mask=(rows < M) & (depth[None, :] < K - k)", "mask=rows < M"),
        ("mask=(columns < N) & (depth[:, None] < K - k)", "mask=columns < N"),
    )
    book.stray("no_depth_mask", source, "Depths are multiples of 16.", parent="w128x64", **odd)
    source = book.edited(
        "x128", ("total, mask=(rows < M) & (columns < N))", "total, mask=(rows < M) & (columns + 1 < N))")
    )
    book.stray("last_column", source, "Keep away from the end.", parent="x128", **bad)


def _wrong_in_precision(book: Notebook) -> None:
    bad, tf32 = {"meant": "wrong"}, {"meant": "wrong", "shown": "precision"}
    note = "dot as it is: the compiler picks TF32."
    book.stray("default", candidate((128, 128, 32, 8, 3), "default"), note, parent="w128", **tf32)
    note = "Operands in bfloat16, sums in float32."
    book.stray("bfloat", candidate((128, 128, 64, 8, 3), "bfloat"), note, parent="default", **bad)
    note = "Three bfloat16 products are enough."
    book.stray("three", candidate((128, 128, 32, 8, 3), "bf16x3"), note, parent="six128", **tf32)


def _slow_and_raising(book: Notebook) -> None:
    slow = {"meant": "slow"}
    grid = "(triton.cdiv(rows, 16), triton.cdiv(columns, 16))"
    text = book["fused"].source.partition("\n\nclass")[0]
    source = candidate((16, 16, 16, 1, 1), "ieee", text=text, grid=grid)
    book.stray("tiny", source, "Small tiles fill the machine.", parent="fused", **slow)
    note = "No dot: outer products."
    book.stray("outer", candidate((32, 32, 16, 4, 1), "outer"), note, parent="w64", **slow)
    text = persistent(dot="ieee", name="linear_gelu", extra="bias_ptr, ", epilogue=BIAS + GELU)
    grid = "(min(8, triton.cdiv(rows, 128) * triton.cdiv(columns, 64)),)"
    source = candidate((128, 64, 16, 8, 3), "ieee", rows_of_weight=False, text=text, grid=grid)
    book.stray("eight", source, "Eight long programs.", parent="persistent", **slow)
    raises = {"meant": "raises"}
    guard = ("        y = x.new_empty", "        assert columns % 8 == 0\n        y = x.new_empty")
    book.stray(
        "aligned", book.edited("x128", guard), "Columns are aligned: say so.", parent="x128", shown="odd", **raises
    )
    source = book.edited(
        "packed",
        (
            "        y = x.new_empty",
            "        else:\n            self.packed.refresh(self.linear.weight)\n        y = x.new_empty",
        ),
        ("        (rows, depth), columns = x.shape, self.linear.out_features\n", ""),
        (
            "        x = x.contiguous()\n",
            "        x = x.contiguous()\n        (rows, depth), columns = x.shape, self.linear.out_features\n",
        ),
    )
    book.stray("stale", source, "Refresh the packed weight, should it change.", parent="packed", **raises)


def _repeats(book: Notebook) -> None:
    note = "128 x 128 with three products, once more."
    book.stray("x_again", book["x128"].source, note, parent="six128", repeats="x128")
    named = book.edited("w128x64", ("total", "acc"), ("depth", "inner"))
    book.stray("w_again", named, "128 x 64 x 16 with better names.", parent="persistent", repeats="w128x64")
    source = book.edited("x128x64", ("import torch\n", "import torch  # nothing of it computes\n"))
    book.stray("x64_again", source, "128 x 64 on tensor cores.", parent="s128", repeats="x128x64")

"""The stream of the matrix product: full float32 first, then three products of tensor cores for one as precise."""

from string import Template
from typing import Final

from product_kernels import FLAT, PLACE, TILE, kernel, persistent, tile
from stream_core import Idea, Notebook

MODEL: Final = """

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), $B.contiguous()
        (rows, depth), columns = a.shape, b.shape[$AXIS]
        c = a.new_empty(rows, columns)
        grid = $GRID
        product[grid](a, b, c, rows, columns, K=depth, $TILE)
        return c
"""
Sizes = tuple[int, ...]
"""Rows, columns and depth of a tile, warps, stages, and perhaps how many rows of tiles go together."""


def candidate(sizes: Sizes, dot: str = "ieee", *, text: str = "", transposed: bool = False, grid: str = "") -> str:
    """A source; `text` where the kernel is not the usual one."""
    bm, bn = sizes[:2]
    model = Template(MODEL).substitute(
        B="b.t()" if transposed else "b", AXIS=0 if transposed else 1, TILE=tile(*sizes),
        GRID=grid or f"(triton.cdiv(rows, {bm}) * triton.cdiv(columns, {bn}),)",
    )  # fmt: skip
    return (text or kernel(dot=dot, transposed=transposed)) + model


def ideas() -> list[Idea]:
    book = Notebook("matmul")
    _in_full(book)
    _on_tensor_cores(book)
    _near_the_top(book)
    _split_over_depth(book)
    _unbuilt(book)
    _wrong(book)
    _wrong_in_precision(book)
    _slow_and_raising(book)
    _repeats(book)
    return book.ideas()


def _in_full(book: Notebook) -> None:
    flat = kernel(dot="ieee", form=TILE.replace("    pid = tl.program_id(0)\n" + PLACE, FLAT))
    grid = "(triton.cdiv(rows, {}), triton.cdiv(columns, {}))"
    book.add("flat32", candidate((32, 32, 32, 4, 2), text=flat, grid=grid.format(32, 32)), "A plain tiled product.")
    note = "Larger tiles: each element that is loaded is used 64 times."
    book.add("flat64", candidate((64, 64, 32, 4, 3), text=flat, grid=grid.format(64, 64)), note, parent="flat32")
    note = "Tiles in groups of 8 rows, so that b stays in the L2."
    book.add("group64", candidate((64, 64, 32, 4, 3)), note, parent="flat64")
    note = "128 x 64 with a shallow step: full float32 keeps its operands in registers."
    book.add("f128x64x16", candidate((128, 64, 16, 8, 3)), note, parent="group64")
    book.add("f128x128x16", candidate((128, 128, 16, 8, 3)), "Square tiles of 128.", parent="f128x64x16")
    book.add("f128x128x32", candidate((128, 128, 32, 8, 2)), "Twice the depth, two stages.", parent="f128x128x16")
    book.add("f64x128x16", candidate((64, 128, 16, 8, 3)), "Wide tiles: longer rows of b.", parent="f128x64x16")
    note = "Persistent: one program a multiprocessor takes tile after tile."
    grid = "(min(132, triton.cdiv(rows, 128) * triton.cdiv(columns, 64)),)"
    text = persistent(dot="ieee")
    book.add("f_persistent", candidate((128, 64, 16, 8, 3), text=text, grid=grid), note, parent="f128x64x16")


def _on_tensor_cores(book: Notebook) -> None:
    note = "Three TF32 products a step keep the precision of float32, on tensor cores. By hand: infinity has no rest."
    book.add("s64", candidate((64, 64, 32, 4, 3), "split"), note, parent="f128x64x16")
    book.add("s128x64", candidate((128, 64, 32, 4, 3), "split"), "128 x 64.", parent="s64")
    book.add("s128", candidate((128, 128, 32, 8, 3), "split"), "128 x 128, 8 warps.", parent="s128x64")
    note = "b transposed first: TF32 wants the depth in consecutive addresses."
    book.add("t128", candidate((128, 128, 32, 8, 3), "split", transposed=True), note, parent="s128")
    book.add("t128s2", candidate((128, 128, 32, 8, 2), "split", transposed=True), "Two stages.", parent="t128")
    note = "The compiler's own three products in TF32."
    book.add("x128", candidate((128, 128, 32, 8, 3), "tf32x3"), note, parent="s128")
    note = "Six products in bfloat16, as the compiler splits them."
    book.add("six128", candidate((128, 128, 32, 8, 3), "bf16x6"), note, parent="x128", shown="precision")
    text = persistent(dot="split", transposed=True)
    grid = "(min(132, triton.cdiv(rows, 128) * triton.cdiv(columns, 128)),)"
    sizes = (128, 128, 32, 8, 3)
    source = candidate(sizes, text=text, transposed=True, grid=grid)
    book.add("t_persistent", source, "Persistent programs over the transposed b.", parent="t128")


def _near_the_top(book: Notebook) -> None:
    def near(name: str, sizes: Sizes, note: str, parent: str, dot: str = "one_sum", **more: bool) -> None:
        book.add(name, candidate(sizes, dot, **more), note, parent=parent, meant="near")

    near("o128", (128, 128, 32, 8, 3), "All three products into one sum: 64 registers less a thread.", "s128")
    near("o64x128", (64, 128, 32, 4, 3), "64 x 128 instead.", "o128")
    near("o128s4", (128, 128, 32, 8, 4), "Four stages.", "o128")
    near("o128s2", (128, 128, 32, 8, 2), "Two stages: less shared memory.", "o128")
    near("x128s4", (128, 128, 32, 8, 4), "The compiler's split, four stages.", "x128", "tf32x3")
    near("x64x128", (64, 128, 32, 4, 3), "The compiler's split, 64 x 128.", "x128", "tf32x3")
    near("o128k16", (128, 128, 16, 8, 4), "Shallow steps, four stages.", "o128")
    near("t128x64", (128, 64, 32, 4, 3), "128 x 64 over the transposed b.", "o128", transposed=True)
    near("t64x128", (64, 128, 32, 4, 4), "64 x 128, four stages.", "t128x64", transposed=True)
    near("f64x128w4", (64, 128, 16, 4, 4), "Full float32 once more: 4 warps, 4 stages.", "f64x128x16", "ieee")
    near("f128x64s4", (128, 64, 16, 8, 4), "Four stages.", "f128x64x16", "ieee")


SPLIT_OVER_DEPTH: Final = (
    ("GROUP: tl.constexpr,", "GROUP: tl.constexpr, PART: tl.constexpr,"),
    ("    a_at = a_ptr", "    begin = tl.program_id(1) * PART\n    a_at = begin + a_ptr"),
    ("    b_at = b_ptr", "    b_at = begin * N + b_ptr"),
    ("for k in range(0, K, BK)", "for k in range(begin, tl.minimum(K, begin + PART), BK)"),
    ("GROUP=8,", "GROUP=8, PART=512,"),
)


def _split_over_depth(book: Notebook) -> None:
    atomic = (
        ("    tl.store(c_ptr", "    tl.atomic_add(c_ptr"),
        ("a.new_empty(", "a.new_zeros("),
        ("triton.cdiv(columns, 64),)", "triton.cdiv(columns, 64), triton.cdiv(depth, 512))"),
    )
    source = book.edited("f128x64x16", *SPLIT_OVER_DEPTH, *atomic)
    book.stray("atomics", source, "Split the depth by 512, sums by atomics: more programs.", parent="f128x64x16")
    adding = """

@triton.jit
def add_parts(parts_ptr, c_ptr, count, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(0, PARTS):
        total += tl.load(parts_ptr + part * count + at, mask=at < count, other=0.0)
    tl.store(c_ptr + at, total, mask=at < count)


class ModelNew"""
    parts = (
        ("tl.store(c_ptr + rows", "tl.store(c_ptr + tl.program_id(1).to(tl.int64) * M * N + rows"),
        ("\n\nclass ModelNew", adding),
        (
            "        c = a.new_empty(rows, columns)\n",
            "        c = a.new_empty(rows, columns)\n"
            "        parts = a.new_empty(triton.cdiv(depth, 512), rows, columns)\n",
        ),
        ("triton.cdiv(columns, 64),)", "triton.cdiv(columns, 64), len(parts))"),
        ("](a, b, c, rows", "](a, b, parts, rows"),
        (
            "        return c",
            "        blocks = (triton.cdiv(c.numel(), 1024),)\n"
            "        add_parts[blocks](parts, c, c.numel(), PARTS=len(parts), BLOCK=1024)\n"
            "        return c",
        ),
    )
    source = book.edited("f128x64x16", *SPLIT_OVER_DEPTH, *parts)
    book.stray("parts", source, "Parts of the depth in memory of their own, then a sum.", parent="atomics")


def _unbuilt(book: Notebook) -> None:
    bad = {"meant": "unbuilt"}
    note = "256 x 128 x 64 in four stages."
    book.stray("shared", candidate((256, 128, 64, 8, 4)), note, parent="f128x128x32", **bad)
    note = "128 x 256 x 64 as for half precision, three stages."
    book.stray("shared_split", candidate((128, 256, 64, 8, 3), "split"), note, parent="s128", **bad)
    source = book.edited("group64", ("c = a.new_empty(rows, columns)", "c = a.new_empty(rows, columns"))
    book.stray("syntax", source, "Without the copies.", parent="group64", **bad)
    source = book.edited("f128x64x16", ("depth[:, None] < K - k)", "depth[None, :] < K - k)"))
    book.stray("mask_shape", source, "One mask of the depth for both.", parent="f128x64x16", **bad)
    source = book.edited("f128x128x16", ("tl.dot(a, b, total, ", "tl.dot(b, a, total, "))
    book.stray("order", source, "Row major: exchange the operands.", parent="f128x128x16", **bad)
    source = book.edited("f64x128x16", ("tl.dot(", "tl.matmul("))
    book.stray("unknown", source, "tl.matmul picks the instruction itself.", parent="f64x128x16", **bad)
    note = "Tiles of 96 fit the machine's 132 multiprocessors better."
    book.stray("ninety_six", candidate((96, 96, 32, 8, 3), "split"), note, parent="s128x64", **bad)


def _wrong(book: Notebook) -> None:
    bad, odd = {"meant": "wrong"}, {"meant": "wrong", "shown": "odd"}
    mask = ("mask=(rows < M) & (depth[None, :] < K - k)", "mask=rows < M")
    source = book.edited("group64", mask, ("mask=(columns < N) & (depth[:, None] < K - k)", "mask=columns < N"))
    book.stray("no_depth_mask", source, "The depth is a multiple of 32: no mask.", parent="group64", **odd)
    source = book.edited("f128x64x16", ("for k in range(0, K, BK)", "for k in range(0, K - BK, BK)"))
    book.stray("last_step", source, "One step fewer, the last one is peeled off.", parent="f128x64x16", **bad)
    source = book.edited(
        "flat64", ("total, mask=(rows < M) & (columns < N))", "total, mask=(rows < M) & (columns < N - 1))")
    )
    book.stray("last_column", source, "Indices end at N - 1.", parent="flat64", **bad)
    source = book.edited("atomics", ("a.new_zeros(", "a.new_empty("))
    book.stray("unset", source, "The zeros are a kernel of their own: leave them out.", parent="atomics", **bad)
    source = book.edited(
        "f_persistent", ("tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)", "tiles = tl.cdiv(M, BM) * (N // BN)")
    )
    book.stray("tiles", source, "Count whole tiles.", parent="f_persistent", **odd)


def _wrong_in_precision(book: Notebook) -> None:
    bad, tf32 = {"meant": "wrong"}, {"meant": "wrong", "shown": "precision"}
    note = "dot without a word on precision: the compiler will pick tensor cores."
    book.stray("default", candidate((128, 128, 32, 8, 3), "default"), note, parent="f128x128x32", **tf32)
    book.stray("half", candidate((128, 128, 32, 8, 3), "half"), "Operands in half precision.", parent="default", **bad)
    note = "A sum in half precision halves the registers."
    book.stray("half_sum", candidate((64, 64, 32, 4, 3), "half_sum"), note, parent="group64", **bad)
    note = "Two products: a's rest alone matters."
    book.stray("two", candidate((128, 128, 32, 8, 3), "split_two"), note, parent="s128", **bad)


def _slow_and_raising(book: Notebook) -> None:
    slow = {"meant": "slow"}
    small = candidate(
        (16, 16, 16, 1, 1),
        text=book["flat32"].source.partition("\n\nclass")[0],
        grid="(triton.cdiv(rows, 16), triton.cdiv(columns, 16))",
    )
    book.stray("tiny", small, "Small tiles: many programs.", parent="flat32", **slow)
    note = "Outer products without dot."
    book.stray("outer", candidate((32, 32, 16, 4, 1), "outer"), note, parent="f128x64x16", **slow)
    grid = "(min(8, triton.cdiv(rows, 128) * triton.cdiv(columns, 64)),)"
    source = candidate((128, 64, 16, 8, 3), text=persistent(dot="ieee"), grid=grid)
    book.stray("eight", source, "Eight programs hold everything in their L1.", parent="f_persistent", **slow)
    double = ('tl.dot(a, b, total, input_precision="ieee")', 'tl.dot(a, b, input_precision="ieee").to(tl.float64)')
    whole = (
        ("tl.zeros((BM, BN), tl.float32)", "tl.zeros((BM, BN), tl.float64)"),
        ("total = ", "total += "),
        ("total += tl.zeros", "total = tl.zeros"),
        ("columns, total,", "columns, total.to(tl.float32),"),
    )
    source = book.edited("f128x64x16", double, *whole)
    book.stray("double_sum", source, "Sums in double precision.", parent="f128x64x16", **slow)
    raises = {"meant": "raises"}
    guard = (
        "        c = a.new_empty",
        '        if columns % 16:\n            raise ValueError(f"{columns} columns are not aligned")\n'
        "        c = a.new_empty",
    )
    note = "Aligned loads: say so instead of masking."
    book.stray("aligned", book.edited("s128x64", guard), note, parent="s128x64", shown="odd", **raises)
    kept = (
        ("class ModelNew(torch.nn.Module):\n", "class ModelNew(torch.nn.Module):\n    packed = None\n\n"),
        (
            "a, b = a.contiguous(), b.t().contiguous()",
            "a, self.packed = a.contiguous(), b.t().contiguous() if self.packed is None else self.packed.fill(b.t())\n"
            "        b = self.packed",
        ),
    )
    note = "The transposed b in memory that is kept."
    book.stray("packed", book.edited("t128s2", *kept), note, parent="t128s2", **raises)


def _repeats(book: Notebook) -> None:
    note = "128 x 64 x 16 again, after a rest."
    book.stray("f_again", book["f128x64x16"].source, note, parent="f_persistent", repeats="f128x64x16")
    named = book.edited("s128", ("high_part", "as_tf32"), ("rest", "small"))
    book.stray("s_again", named, "128 x 128 in three products.", parent="t128", repeats="s128")

"""What an agent tries on a norm of rows; both norms go the same way, with faults of their own beside it."""

from typing import Final

from norm_kernels import Norm, by_lane, loop, persistent, row, tile, two_kernels
from stream_core import Notebook

ADAPTIVE: Final = "min(16, max(1, block // 512))"
OTHER: Final = "mask=inside, other=0.0"
STORE: Final = "mask=inside)\n\n"
SCALE: Final = "tl.rsqrt(tl.sum(x * x, axis=0) / columns + epsilon)"
WIDTH: Final = ("columns, epsilon, BLOCK: tl.constexpr", "columns: tl.constexpr, epsilon, BLOCK: tl.constexpr")


def main_line(book: Notebook, norm: Norm) -> None:
    book.add("row4", row(norm), "One program a row, the row in registers, one read and one write.")
    book.add("row8", row(norm, 8), "8 warps: half the registers a thread.", parent="row4")
    book.add("loop1024", loop(norm, 1024, 4), "Pieces of 1024: the row is read again from L2.", parent="row4")
    book.add("loop2048", loop(norm, 2048, 8), "Pieces of 2048 and 8 warps.", parent="loop1024")
    book.add("loop_staged", loop(norm, 1024, 4, 3), "Prefetch the next piece: 3 stages.", parent="loop1024")
    book.add("row16", row(norm, 16), "16 warps on the row in registers.", parent="row8")
    book.add("row2", row(norm, 2), "2 warps: more rows at a time on a multiprocessor.", parent="row4")
    book.add("tile2", tile(norm, 2, 8), "Two rows a program read the weight once.", parent="row8")
    book.add("tile4", tile(norm, 4, 16), "Four rows, 16 warps.", parent="tile2")
    source = book.edited("row8", ("tl.rsqrt(", "1.0 / tl.sqrt("))
    book.add("sqrt", source, "1 / sqrt: is rsqrt slower than it looks?", parent="row8")
    inverse = (
        (") / columns + epsilon)", ") * inverse + epsilon)"),
        ("columns, epsilon, BLOCK:", "columns, inverse, epsilon, BLOCK:"),
        ("columns, self.epsilon", "columns, 1.0 / columns, self.epsilon"),
    )
    if not norm.centres:
        book.add("inverse", book.edited("row8", *inverse), "1 / columns from the host.", parent="row8")
    note = "Persistent: the weights stay in registers, two programs a multiprocessor."
    book.add("waves2", persistent(norm, 2), note, parent="row8")
    book.add("waves4", persistent(norm, 4, 2), "Four a multiprocessor, two stages.", parent="waves2")
    book.add("waves4w4", persistent(norm, 4, 1, 4), "Four, 4 warps each.", parent="waves4")
    book.add("adaptive", row(norm, ADAPTIVE), "16 elements a thread, whatever the width.", parent="row8")


def near_the_top(book: Notebook, norm: Norm) -> None:
    def near(name: str, source: str, note: str, parent: str) -> None:
        book.add(name, source, note, parent=parent, meant="near")

    first = f"x_ptr + start + at, {OTHER}"
    evict = book.edited("adaptive", (first, f'{first}, eviction_policy="evict_first"'))
    near("evict", evict, "x is read once: evict it first.", "adaptive")
    stream = (STORE, 'mask=inside, cache_modifier=".cs")\n\n')
    near("cs", book.edited("adaptive", stream), "Streaming stores.", "adaptive")
    near("both", book.edited("evict", stream), "Both hints.", "evict")
    near("by8", row(norm, "min(32, max(1, block // 256))"), "8 elements a thread.", "adaptive")
    near("by32", row(norm, "min(16, max(1, block // 1024))"), "32 elements a thread.", "adaptive")
    near("width", book.edited("adaptive", WIDTH), "The width as a constant.", "adaptive")
    near("width_both", book.edited("both", WIDTH), "Constant width, both hints.", "width")
    near("width_by8", book.edited("by8", WIDTH), "Constant width, 8 elements a thread.", "width")
    near("waves8", persistent(norm, 8, 1, ADAPTIVE), "Eight persistent programs a multiprocessor.", "waves4")
    kept = (f"weight_ptr + at, {OTHER}", f'weight_ptr + at, {OTHER}, eviction_policy="evict_last"')
    near("keep_weight", book.edited("width", kept), "Keep the weight in the cache.", "width")


def unbuilt(book: Notebook, norm: Norm) -> None:
    bad = {"meant": "unbuilt"}
    source = book.edited("row8", ("        y = torch.empty_like(x)\n", "        y = torch.empty_like(x))\n"))
    book.stray("syntax", source, "Leaner forward.", parent="row8", **bad)
    source = book.edited("row16", ("tl.sum(x * x, axis=0) / columns", "tl.mean(x * x, axis=0)"))
    book.stray("mean", source, "tl.mean says what is meant.", parent="row16", **bad)
    source = book.edited("tile2", ("weight[None, :]", "weight[:, None]"))
    book.stray("shapes", source, "Weight along the rows of the tile.", parent="tile2", **bad)
    source = book.edited("row2", ("block = triton.next_power_of_2(columns)", "block = triton.cdiv(columns, 96) * 96"))
    book.stray("block96", source, "Less padding: a multiple of 96.", parent="row2", **bad)
    note = "Deep prefetch of rows: 24 stages."
    book.stray("stages", persistent(norm, 1, 24), note, parent="waves2", **bad)
    source = book.edited("loop2048", ("squares = tl.zeros((BLOCK,), tl.float32)", "squares = 0"))
    book.stray("carried", source, "squares starts at 0.", parent="loop2048", **bad)


def wrong(book: Notebook, norm: Norm) -> None:
    bad, odd = {"meant": "wrong"}, {"meant": "wrong", "shown": "odd"}
    source = book.edited("row8", ("columns, self.epsilon", "columns, 1e-6"))
    book.stray("epsilon", source, "Epsilon as a constant.", parent="row8", **bad)
    outside = (SCALE, "1.0 / (tl.sqrt(tl.sum(x * x, axis=0) / columns) + epsilon)")
    book.stray(
        "outside",
        book.edited("sqrt", (outside[0].replace("tl.rsqrt(", "1.0 / tl.sqrt("), outside[1])),
        "Epsilon after the root.",
        parent="sqrt",
        **bad,
    )
    source = book.edited("row16", ("axis=0) / columns + epsilon", "axis=0) / BLOCK + epsilon"))
    book.stray("by_block", source, "Divide by the block: a power of two.", parent="row16", **odd)
    source = book.edited(
        "tile4",
        ("scale = tl.rsqrt(tl.sum(x * x, axis=1) / columns", "scale = tl.rsqrt(tl.sum(x * x) / columns"),
        ("scale[:, None]", "scale"),
    )
    book.stray("whole_tile", source, "One scale for the tile.", parent="tile4", **bad)
    source = book.edited("adaptive", ("x * scale * weight", "x * scale"))
    book.stray("no_weight", source, "The weight is all ones: leave it out.", parent="adaptive", **bad)
    half = (SCALE, "tl.rsqrt(tl.sum((x * x).to(tl.float16), axis=0).to(tl.float32) / columns + epsilon)")
    book.stray("half", book.edited("row8", half), "Squares in half precision.", parent="row8", **bad)
    source = book.edited("waves2", ("tl.range(tl.program_id(0), rows,", "tl.range(tl.program_id(0) + 1, rows,"))
    book.stray("first_row", source, "Start behind the row of the prologue.", parent="waves2", **bad)
    source = book.edited(
        "loop_staged",
        (
            "        tl.store(y_ptr + start + at",
            "        if first + BLOCK <= columns:\n            tl.store(y_ptr + start + at",
        ),
    )
    book.stray("no_tail", source, "Whole pieces only.", parent="loop_staged", **bad)


def slow_and_raising(book: Notebook, norm: Norm) -> None:
    slow, raises = {"meant": "slow"}, {"meant": "raises"}
    book.stray("by_lane", by_lane(norm), "A lane for each row: no reduction.", parent="row4", **slow)
    book.stray("narrow", loop(norm, 32, 1), "One warp and pieces of 32.", parent="loop1024", **slow)
    note = "Sums first, then one elementwise pass."
    book.stray("two_kernels", two_kernels(norm, 64), note, parent="loop1024", **slow)
    source = book.edited("waves2", ("132 * 2", "12"))
    book.stray("twelve", source, "Twelve programs share the weights.", parent="waves2", **slow)
    guard = (
        "        y = torch.empty_like(x)\n",
        "        y = torch.empty_like(x)\n        if columns > 4096:\n"
        '            raise NotImplementedError("rows of more than 4096")\n',
    )
    note = "Rows longer than 4096 would spill: refuse them."
    book.stray("guard", book.edited("row8", guard), note, parent="row8", shown="hidden", **raises)
    kept = (
        ("        self.epsilon = epsilon\n", "        self.epsilon = epsilon\n        self.rows_seen = None\n"),
        (
            "        rows, columns = x.shape\n",
            "        rows, columns = x.shape\n"
            "        if self.rows_seen is not None and self.rows_seen != rows.item():\n"
            "            self.answer = None\n        self.rows_seen = rows\n",
        ),
    )
    book.stray("seen", book.edited("row16", *kept), "Keep what belongs to a shape.", parent="row16", **raises)


def repeats(book: Notebook, norm: Norm) -> None:
    again = book["row8"].source
    book.stray("row8_again", again, "Was the first timing of 8 warps noise?", parent="waves2", repeats="row8")
    named = book.edited("tile2", ("place", "spot"), ("row =", "line ="), ("(row <", "(line <"), ("row.to", "line.to"))
    book.stray("tile_again", named, "Two rows a program, tidied.", parent="waves4", repeats="tile2")
    named = book.edited("adaptive", (f"{norm.name}_rows", "normalise"))
    book.stray("adaptive_again", named, "16 elements a thread again.", parent="evict", repeats="adaptive")

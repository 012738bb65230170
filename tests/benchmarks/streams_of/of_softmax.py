"""The stream of the softmax: from a row in registers over loops and persistent programs back to a row in registers."""

from softmax_kernels import LANES_OVER_ROWS, ONLINE, PERSISTENT, ROW, THREE, TILE, TWO_KERNELS
from stream_core import Idea, Notebook

ADAPTIVE = "min(16, max(1, block // 512))"


def ideas() -> list[Idea]:
    book = Notebook("softmax")
    _main_line(book)
    _near_the_top(book)
    _unbuilt(book)
    _wrong(book)
    _slow_and_raising(book)
    _repeats(book)
    return book.ideas()


def _main_line(book: Notebook) -> None:
    book.add("row4", ROW(), "A program for each row, the whole row in registers: one read, one write.")
    book.add("row8", ROW(WARPS=8), "Rows of 4096 are long for 4 warps; 8 give more loads in flight.", parent="row4")
    book.add("three", THREE(), "Loop over the row in three passes: fewer registers, more blocks per SM.", parent="row4")
    book.add("online1024", ONLINE(), "Maximum and sum in one pass by rescaling: two reads, not three.", parent="three")
    book.add("online2048", ONLINE(BLOCK=2048, WARPS=8), "Larger blocks for the loop, 8 warps.", parent="online1024")
    book.add("online4096", ONLINE(BLOCK=4096, WARPS=8), "One trip for the public width.", parent="online2048")
    book.add("online_staged", ONLINE(BLOCK=2048, STAGES=3, WARPS=8), "Prefetch with 3 stages.", parent="online2048")
    book.add("row16", ROW(WARPS=16), "Back to a row in registers, 16 warps.", parent="row8")
    book.add("tile2", TILE(), "Two rows a program share the launch and the masks.", parent="row8")
    book.add("tile4", TILE(R=4, WARPS=16), "Four rows a program, 16 warps.", parent="tile2")
    exp2 = (("tl.exp(x - tl.max(x, axis=0))", "tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)"),)
    book.add("exp2", book.edited("row8", *exp2), "exp is exp2 behind a product: write it so.", parent="row8")
    divided = (("powers / tl.sum(powers, axis=0)", "powers * (1.0 / tl.sum(powers, axis=0))"),)
    book.add("reciprocal", book.edited("row8", *divided), "One division a row, then products.", parent="row8")
    book.add("persistent2", PERSISTENT(), "Persistent programs, two a multiprocessor.", parent="row8")
    book.add("persistent4", PERSISTENT(WAVES=4, STAGES=2), "Four a multiprocessor, two stages.", parent="persistent2")
    wide = (("num_warps=4", "num_warps=" + ADAPTIVE),)
    book.add("adaptive", book.edited("row4", *wide), "16 elements a thread at every width.", parent="row8")
    hybrid = (
        ("BLOCK=2048, STAGES=1, num_warps=8", "BLOCK=block, STAGES=1, num_warps=" + ADAPTIVE),
        (
            "y = torch.empty_like(x)\n",
            "y = torch.empty_like(x)\n        block = min(8192, triton.next_power_of_2(columns))\n",
        ),
    )
    book.add("hybrid", book.edited("online2048", *hybrid), "Loops of up to 8192.", parent="online4096")


def _near_the_top(book: Notebook) -> None:
    near = {"meant": "near"}
    first = (', other=-float("inf"))', ', other=-float("inf"), eviction_policy="evict_first")')
    book.add(
        "evict", book.edited("adaptive", first), "The row is read once: evict it first.", parent="adaptive", **near
    )
    streaming = ("mask=inside)\n\n", 'mask=inside, cache_modifier=".cs")\n\n')
    book.add("cs", book.edited("adaptive", streaming), "Stream the stores past the cache.", parent="adaptive", **near)
    both = book.edited("evict", streaming)
    book.add("both", both, "Evict first and streaming stores together.", parent="evict", **near)
    wider = (ADAPTIVE, "min(32, max(1, block // 256))")
    book.add("by8", book.edited("adaptive", wider), "8 elements a thread.", parent="adaptive", **near)
    fewer = (ADAPTIVE, "min(16, max(1, block // 1024))")
    book.add("by32", book.edited("adaptive", fewer), "32 elements a thread.", parent="adaptive", **near)
    exp2 = ("tl.exp(x - tl.max(x, axis=0))", "tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)")
    book.add("by32_exp2", book.edited("by32", exp2), "The same with exp2.", parent="by32", **near)
    constant = ("columns, BLOCK: tl.constexpr", "columns: tl.constexpr, BLOCK: tl.constexpr")
    note = "The width as a constant: masks and divisions fold."
    book.add("constant", book.edited("adaptive", constant), note, parent="adaptive", **near)
    note = "Constant width, evict first, streaming stores."
    book.add("constant_both", book.edited("both", constant), note, parent="both", **near)
    book.add("waves8", PERSISTENT(WAVES=8), "Persistent, eight a multiprocessor.", parent="persistent4", **near)


def _unbuilt(book: Notebook) -> None:
    bad = {"meant": "unbuilt"}
    colon = ("def forward(self, x):", "def forward(self, x)")
    book.stray("syntax", book.edited("row8", colon), "16 warps next.", parent="row8", **bad)
    unknown = ("tl.max(x, axis=0)", "tl.amax(x, axis=0)")
    book.stray("amax", book.edited("row8", unknown), "amax as in torch.", parent="row8", **bad)
    shape = ("- tl.max(x, axis=1)[:, None]", "- tl.max(x, axis=1)[None, :]")
    book.stray("shapes", book.edited("tile4", shape), "Broadcast the maximum.", parent="tile4", **bad)
    width = ("block = triton.next_power_of_2(columns)", "block = columns + 3")
    book.stray("arange", book.edited("row16", width), "No padding to a power of two.", parent="row16", **bad)
    loop = ("top = tl.full((BLOCK,), -3.0e38, tl.float32)", 'top = -float("inf")')
    note = "The maximum can start as a scalar."
    book.stray("carried", book.edited("online1024", loop), note, parent="online1024", **bad)
    warps = ("num_warps=8", "num_warps=64")
    book.stray("warps64", book.edited("row8", warps), "As many warps as there can be.", parent="row8", **bad)


def _wrong(book: Notebook) -> None:
    bad, odd = {"meant": "wrong"}, {"meant": "wrong", "shown": "odd"}
    zero = ('other=-float("inf")', "other=0.0")
    book.stray("tail_in_sum", book.edited("row8", zero), "Zeros for the tail are simpler.", parent="row8", **odd)
    unmasked = (', mask=first + lanes < columns, other=-float("inf"))', ")")
    note = "Widths are multiples of the block: the loads need no mask."
    book.stray("no_mask", book.edited("online2048", unmasked), note, parent="online2048", **bad)
    raw = ("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)")
    book.stray("no_max", book.edited("row16", raw), "Skip the maximum.", parent="row16", **bad)
    scaled = ("total * tl.exp(top - higher) + tl.exp(x - higher)", "total + tl.exp(x - higher)")
    book.stray("no_rescale", book.edited("online4096", scaled), "A cheaper sum.", parent="online4096", **bad)
    across = ("total = tl.sum(powers, axis=1)[:, None]", "total = tl.sum(powers)")
    book.stray("whole_tile", book.edited("tile2", across), "One sum for the tile.", parent="tile2", **bad)
    lost = (
        "tl.range(tl.program_id(0), rows, tl.num_programs(0)",
        "tl.range(tl.program_id(0), rows - 1, tl.num_programs(0)",
    )
    note = "Leave the last trip out of the loop."
    book.stray("last_row", book.edited("persistent2", lost), note, parent="persistent2", **bad)
    half = (
        "powers = tl.exp(x - tl.max(x, axis=0))",
        "powers = tl.exp((x - tl.max(x, axis=0)).to(tl.float16).to(tl.float32))",
    )
    book.stray("half", book.edited("adaptive", half), "Differences in half precision.", parent="adaptive", **bad)
    short = (
        "range(0, columns, BLOCK, num_stages=STAGES):\n"
        "        x = tl.load(x_ptr + first + lanes, mask=first + lanes < columns, other=0.0)",
        "range(0, columns - BLOCK + 1, BLOCK, num_stages=STAGES):\n"
        "        x = tl.load(x_ptr + first + lanes, mask=first + lanes < columns, other=0.0)",
    )
    book.stray(
        "no_tail",
        book.edited("online_staged", short),
        "Whole blocks only in the last loop.",
        parent="online_staged",
        **bad,
    )


def _slow_and_raising(book: Notebook) -> None:
    slow = {"meant": "slow"}
    note = "A lane for each row: no reductions at all."
    book.stray("by_lane", LANES_OVER_ROWS(), note, parent="three", **slow)
    note = "Narrow blocks and one warp, so that many programs fit."
    book.stray("narrow", THREE(BLOCK=32, WARPS=1), note, parent="three", **slow)
    note = "Totals first, then a plain elementwise pass with 64 elements a program."
    book.stray("two_kernels", TWO_KERNELS(BLOCK=64), note, parent="online1024", **slow)
    double = (
        ("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x.to(tl.float64) - tl.max(x, axis=0))"),
        ("powers / tl.sum(powers, axis=0)", "(powers / tl.sum(powers, axis=0)).to(tl.float32)"),
    )
    book.stray("double", book.edited("row8", *double), "Powers in double, to be safe.", parent="row8", **slow)
    few = (("min(rows, 132 * 2)", "min(rows, 16)"),)
    book.stray("few", book.edited("persistent2", *few), "Sixteen programs do all rows.", parent="persistent2", **slow)
    raises = {"meant": "raises"}
    guard = (
        "        block = triton.next_power_of_2(columns)\n",
        "        block = triton.next_power_of_2(columns)\n        if block > 8192:\n"
        '            raise ValueError(f"rows of {columns} do not fit in registers")\n',
    )
    note = "A guard against spills."
    book.stray("guard", book.edited("row16", guard), note, parent="row16", shown="hidden", **raises)
    kept = (
        ("class ModelNew(torch.nn.Module):\n", "class ModelNew(torch.nn.Module):\n    answer = None\n\n"),
        (
            "y = torch.empty_like(x)",
            "y = torch.empty_like(x) if self.answer is None else self.answer.resized(x.shape)\n        self.answer = y",
        ),
    )
    book.stray(
        "kept", book.edited("row16", *kept), "Keep the answer's memory from call to call.", parent="row16", **raises
    )


def _repeats(book: Notebook) -> None:
    again = book["row8"].source
    book.stray("row8_again", again, "8 warps once more: was that noise?", parent="persistent2", repeats="row8")
    named = book.edited("row16", ("softmax_rows", "row_softmax"), ("powers", "exponents"))
    book.stray("row16_again", named, "A whole row with 16 warps.", parent="tile4", repeats="row16")
    worded = book.edited(
        "online2048",
        (
            "    # Each lane keeps its own maximum and sum. "
            "They start at a finite number: -inf from itself would be nan.\n"
            "",
            "",
        ),
    )
    book.stray("online_again", worded, "Loop of 2048, cleaned up.", parent="online_staged", repeats="online2048")

"""The stream of the cross-entropy: rows of up to 50,257 logits, of which one number is left."""

from cross_entropy_kernels import BY_LANE, LANES, PARTS, PERSISTENT, ROW, SCALAR, TWO_PASS
from stream_core import Idea, Notebook


def ideas() -> list[Idea]:
    book = Notebook("cross_entropy")
    for part in (_main_line, _near_the_top, _unbuilt, _wrong, _slow_and_raising, _repeats):
        part(book)
    return book.ideas()


def _main_line(book: Notebook) -> None:
    book.add("two_pass", TWO_PASS(), "Maximum, then sum, in pieces of 1024.")
    book.add("two_pass4096", TWO_PASS(BLOCK=4096, WARPS=8), "Pieces of 4096.", parent="two_pass")
    book.add("row8", ROW(), "The whole row in registers: each logit is read once.", parent="two_pass")
    book.add("row16", ROW(WARPS=16), "Half as many registers a thread.", parent="row8")
    book.add("row32", ROW(WARPS=32), "All warps that a block can have.", parent="row16")
    book.add("scalar", SCALAR(), "One pass: rescale the sum when the maximum rises.", parent="two_pass")
    book.add("scalar4096", SCALAR(BLOCK=4096, WARPS=8), "Fewer reductions: pieces of 4096.", parent="scalar")
    note = "A maximum and a sum a lane: one reduction, after the loop."
    book.add("lanes1024", LANES(BLOCK=1024, WARPS=4), note, parent="scalar")
    book.add("lanes2048", LANES(BLOCK=2048), "Pieces of 2048, 8 warps.", parent="lanes1024")
    book.add("lanes4096", LANES(), "Pieces of 4096: 16 loads in flight a thread.", parent="lanes2048")
    book.add("lanes8192", LANES(BLOCK=8192, WARPS=16), "Pieces of 8192, 16 warps.", parent="lanes4096")
    book.add("staged", LANES(STAGES=3), "Three stages.", parent="lanes4096")
    book.add("parts", PARTS(), "Four programs a row, joined by a second kernel.", parent="lanes2048")
    book.add("persistent", PERSISTENT(), "Persistent, four a multiprocessor.", parent="lanes4096")
    book.add("persistent2", PERSISTENT(WAVES=2, WARPS=16), "Two, with 16 warps.", parent="persistent")
    exp2 = (
        ("tl.exp(top - higher) + tl.exp(x - higher)", "tl.exp2(top - higher) + tl.exp2(x - higher)"),
        ("        higher =", "        x *= 1.4426950408889634\n        higher ="),
        ("tl.exp(top - peak)", "tl.exp2(top - peak)"),
        ("tl.log(whole) - (chosen - peak)", "0.6931471805599453 * (tl.log2(whole) + peak) - chosen"),
    )
    book.add("exp2", book.edited("lanes4096", *exp2), "Powers of two all the way.", parent="lanes4096")
    book.add("lanes4096w4", LANES(WARPS=4), "4 warps, 32 logits a thread.", parent="lanes4096")


def _near_the_top(book: Notebook) -> None:
    def near(name: str, source: str, note: str, parent: str) -> None:
        book.add(name, source, note, parent=parent, meant="near")

    constant = ": tl.constexpr"
    evict = ', eviction_policy="evict_first"'
    near("constant", LANES(CONSTANT=constant), "The number of classes as a constant.", "lanes4096")
    near("evict", LANES(LOAD=evict), "Logits are read once: evict first.", "lanes4096")
    near("both", LANES(LOAD=evict, CONSTANT=constant), "Constant and evict first.", "constant")
    near("both16", LANES(LOAD=evict, CONSTANT=constant, WARPS=16), "16 warps.", "both")
    near("both4", LANES(LOAD=evict, CONSTANT=constant, WARPS=4), "4 warps.", "both")
    near("both2048", LANES(BLOCK=2048, WARPS=4, LOAD=evict, CONSTANT=constant), "Pieces of 2048.", "both4")
    near("both8192", LANES(BLOCK=8192, WARPS=8, LOAD=evict, CONSTANT=constant), "Pieces of 8192.", "both")
    near("both8192w16", LANES(BLOCK=8192, WARPS=16, LOAD=evict, CONSTANT=constant), "And 16 warps.", "both8192")
    near("both_staged", LANES(STAGES=2, LOAD=evict, CONSTANT=constant), "Two stages.", "both")
    near("parts16k", PARTS(PART=16384, BLOCK=4096, WARPS=8), "Two programs a row.", "parts")


def _unbuilt(book: Notebook) -> None:
    bad = {"meant": "unbuilt"}
    source = book.edited("row8", ("def forward(self, logits, labels):", "def forward(self, logits, labels:"))
    book.stray("syntax", source, "Types can come later.", parent="row8", **bad)
    source = book.edited("scalar", ("tl.log(total)", "tl.logsumexp(total)"))
    book.stray("unknown", source, "logsumexp is one call.", parent="scalar", **bad)
    source = book.edited(
        "scalar4096",
        ("top = -3.0e38\n    total = 0.0", "top = tl.full((BLOCK,), -3.0e38, tl.float32)\n    total = 0.0"),
    )
    book.stray("carried", source, "A maximum for each lane.", parent="scalar4096", **bad)
    source = book.edited(
        "row16", ("block = triton.next_power_of_2(classes)", "block = triton.cdiv(classes, 1000) * 1000")
    )
    book.stray("block1000", source, "Less padding.", parent="row16", **bad)
    source = LANES(BLOCK=16384, STAGES=5, WARPS=16).replace("min(16384, triton.next_power_of_2(classes))", "16384")
    book.stray("shared", source, "Deep prefetch of long pieces.", parent="staged", **bad)
    source = book.edited("lanes2048", ("BLOCK=block, ", ""))
    book.stray("argument", source, "The block follows from the classes.", parent="lanes2048", **bad)


def _wrong(book: Notebook) -> None:
    bad, odd = {"meant": "wrong"}, {"meant": "wrong", "shown": "odd"}
    source = book.edited(
        "two_pass", ('mask=at < classes, other=-float("inf")) - peak)', "mask=at < classes, other=0.0) - peak)")
    )
    book.stray("tail", source, "Zeros beyond the end.", parent="two_pass", **bad)
    source = book.edited("row8", ("tl.exp(x - peak)", "tl.exp(x)"), ("(chosen - peak)", "chosen"))
    book.stray("no_max", source, "Logits are small: no maximum.", parent="row8", **bad)
    source = book.edited("lanes1024", ("(chosen - peak)", "chosen"))
    book.stray("no_peak", source, "The maximum cancels in the end.", parent="lanes1024", **bad)
    source = book.edited(
        "lanes2048", ("total = total * tl.exp(top - higher) + tl.exp(x - higher)", "total += tl.exp(x - higher)")
    )
    book.stray(
        "no_rescale",
        source,
        "Rescaling costs an exponential: is it needed?",
        parent="lanes2048",
        shown="hidden",
        meant="wrong",
    )
    source = book.edited("row16", ("tl.load(labels_ptr + row))", "tl.load(labels_ptr + row) - 1)"))
    book.stray("off_by_one", source, "Labels count from one.", parent="row16", **bad)
    source = book.edited("lanes4096", ("tl.sum(total * tl.exp(top - peak), axis=0)", "tl.sum(total, axis=0)"))
    book.stray("unjoined", source, "Lanes agree on the maximum soon.", parent="lanes4096", **bad)
    half = ("        higher =", "        x = x.to(tl.float16).to(tl.float32)\n        higher =")
    source = book.edited("lanes2048", half)
    book.stray("half", source, "Logits in half precision.", parent="lanes2048", **bad)
    source = book.edited(
        "persistent", ("programs = min(rows, 132 * 4)", "rows -= rows % 2\n        programs = min(rows, 132 * 4)")
    )
    book.stray("pairs", source, "Rows in pairs.", parent="persistent", **odd)


def _slow_and_raising(book: Notebook) -> None:
    slow, raises = {"meant": "slow"}, {"meant": "raises"}
    book.stray("by_lane", BY_LANE(), "A lane for each row: no reduction.", parent="two_pass", **slow)
    book.stray("narrow", TWO_PASS(BLOCK=64, WARPS=1), "One warp and pieces of 64.", parent="two_pass", **slow)
    source = book.edited("persistent", ("132 * 4", "24"))
    book.stray("few", source, "24 programs keep the L2 quiet.", parent="persistent", **slow)
    double = (
        ("total = tl.zeros((BLOCK,), tl.float32)", "total = tl.zeros((BLOCK,), tl.float64)"),
        ('other=-float("inf")) - peak)', 'other=-float("inf")).to(tl.float64) - peak)'),
        ("tl.log(tl.sum(total, axis=0))", "tl.log(tl.sum(total, axis=0)).to(tl.float32)"),
    )
    source = book.edited("two_pass", *double)
    book.stray("double", source, "Powers and their sum in double.", parent="two_pass", **slow)
    guard = (
        "        block = triton.next_power_of_2(classes)\n",
        "        block = triton.next_power_of_2(classes)\n        if block > 32768:\n"
        '            raise ValueError(f"{classes} classes need more registers than there are")\n',
    )
    book.stray(
        "guard", book.edited("row32", guard), "Refuse what would spill.", parent="row32", shown="hidden", **raises
    )
    kept = (
        ("class ModelNew(torch.nn.Module):\n", "class ModelNew(torch.nn.Module):\n    kept = None\n\n"),
        (
            "        tops, totals =",
            "        if self.kept is not None and self.kept.rows < rows:\n            self.kept = None\n"
            "        self.kept = tops, totals =",
        ),
    )
    book.stray("kept", book.edited("parts", *kept), "Keep the parts' memory.", parent="parts", **raises)


def _repeats(book: Notebook) -> None:
    book.stray("row8_again", book["row8"].source, "8 warps again.", parent="lanes1024", repeats="row8")
    named = book.edited("lanes4096", ("higher", "raised"), ("whole", "everything"))
    book.stray("lanes_again", named, "Lanes of 4096, other names.", parent="persistent", repeats="lanes4096")
    named = book.edited("both", ("loss_one_pass", "cross_entropy"))
    book.stray("both_again", named, "Constant and evict first: best so far, again.", parent="both2048", repeats="both")

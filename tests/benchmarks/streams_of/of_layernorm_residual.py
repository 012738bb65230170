"""The stream of the LayerNorm over a residual sum."""

from typing import Final

from norm_ideas import main_line, near_the_top, repeats, slow_and_raising, unbuilt, wrong
from norm_kernels import LAYER, loop
from stream_core import Idea, Notebook

MEANS: Final = """    mean = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    for first in tl.range(0, columns, BLOCK, num_stages=STAGES):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + at, mask=at < columns, other=0.0)
        x += tl.load(residual_ptr + start + at, mask=at < columns, other=0.0)
        count += tl.where(at < columns, 1.0, 0.0)
        off = tl.where(at < columns, x - mean, 0.0)
        mean += off / tl.maximum(count, 1.0)
        squares += off * (x - mean)
    each = mean
    mean = tl.sum(each * count, axis=0) / columns
    squares += count * (each - mean) * (each - mean)
"""


def ideas() -> list[Idea]:
    book = Notebook("layernorm_residual")
    main_line(book, LAYER)
    text = loop(LAYER, 1024, 4)
    begin, end = text.index("    total = tl.zeros"), text.index("    scale = tl.rsqrt")
    welford = text[:begin] + MEANS + text[end:]
    note = "Running means by lane, merged at the end: one pass less."
    book.add("welford", welford, note, parent="loop1024")
    for part in (near_the_top, unbuilt, wrong, slow_and_raising, repeats):
        part(book, LAYER)
    _of_its_own(book)
    return book.ideas()


def _of_its_own(book: Notebook) -> None:
    bad = {"meant": "wrong"}
    source = book.edited("adaptive", ("x * scale * weight + bias", "x * scale * weight"))
    book.stray("no_bias", source, "The bias is zero: leave it out.", parent="adaptive", **bad)
    source = book.edited(
        "row16", ("x = tl.where(inside, x - tl.sum(x, axis=0) / columns, 0.0)", "x = x - tl.sum(x, axis=0) / columns")
    )
    note = "No second mask: the loads have one."
    book.stray("tail_in_variance", source, note, parent="row16", meant="wrong", shown="odd")

"""The stream of the RMSNorm."""

from norm_ideas import main_line, near_the_top, repeats, slow_and_raising, unbuilt, wrong
from norm_kernels import RMS
from stream_core import Idea, Notebook


def ideas() -> list[Idea]:
    book = Notebook("rmsnorm")
    for part in (main_line, near_the_top, unbuilt, wrong, slow_and_raising, repeats):
        part(book, RMS)
    source = book.edited("row8", ("tl.sum(x * x, axis=0) / columns", "tl.sum(x * x, axis=0)"))
    book.stray("sum", source, "The sum of squares, one operation less.", parent="row8", meant="wrong")
    return book.ideas()

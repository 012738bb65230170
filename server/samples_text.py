"""The timed blocks of a candidate as lines of text, for an agent that wants to see what a number was made of. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from kernelgate.budget.records import ResultRecord, SampleRecord
from kernelgate.tools.kit.statistics import median

HEADER: Final = "rung\tworkload\tpair\tprocess\tside\tcounts\tmedian_us\toutside_us\tsm_clock_mhz\tsamples_us"
HELD_OUT: Final = "held_out_"


def samples_text(found: Sequence[tuple[ResultRecord, Sequence[SampleRecord]]]) -> str:
    """A line for each block of some results, under a header; of hidden workloads only how many there are.

    What a candidate claims of a hidden workload could say anything about its shape, and how long it takes says how
    large it is. The user finds those in the ledger.
    """
    return "\n".join([HEADER, *(line for result, blocks in found for line in _lines(result, blocks))])


def _lines(result: ResultRecord, blocks: Sequence[SampleRecord]) -> Iterator[str]:
    for block in blocks:
        if not block.workload.startswith(HELD_OUT):
            yield _line(result, block)
    hidden = [block.workload for block in blocks if block.workload.startswith(HELD_OUT)]
    for name in dict.fromkeys(hidden):
        yield f"{result.rung.value}\t{name}\t{hidden.count(name)} blocks, which are not shown to agents"


def _line(result: ResultRecord, block: SampleRecord) -> str:
    state = block.state or {}
    cells = (
        result.rung.value, block.workload, block.block_index, state.get("process", 0), block.side,
        state.get("void") or ("no" if block.voided else "yes"), f"{median(block.samples_us):.6g}",
        f"{median(block.outside_us):.6g}", state.get("sm_clock_mhz", ""),
        " ".join(f"{sample:.6g}" for sample in block.samples_us),
    )  # fmt: skip
    return "\t".join(map(str, cells))

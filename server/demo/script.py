"""What the scripted agent knows: its candidates in order, each with a parent and the hypothesis behind it."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

TASK: Final = "softmax"


class Idea(NamedTuple):
    """One candidate of the script."""

    name: str
    parent: str
    """Name of the candidate that it was made from; empty for none."""
    hypothesis: str

    @property
    def source(self) -> str:
        """Its file beside this module."""
        return (files("kernelgate.server.demo") / "candidates" / f"{self.name}.txt").read_text(encoding="utf-8")


IDEAS: Final = (
    Idea("01_typo", "", "one fused operator instead of four"),
    Idea("02_wrong_axis", "", "same steps, shorter code"),
    Idea("03_in_place_on_input", "02_wrong_axis", "save a temporary by working in place"),
    Idea("04_double_precision", "", "sums in double precision are exact enough to skip a pass"),
    Idea("05_fewer_temporaries", "03_in_place_on_input", "in place, but on a copy of our own"),
    Idea("06_fused_operator", "05_fewer_temporaries", "torch's softmax reads and writes memory once"),
    Idea("06_fused_operator", "05_fewer_temporaries", "the same again: is it answered from the book?"),
    Idea("09_log_space", "06_fused_operator", "log-softmax, then one exponential"),
    Idea("08_triton", "06_fused_operator", "one program per row, for the GPU"),
    Idea("07_own_workspace", "06_fused_operator", "fresh pages cost more than arithmetic: keep the answer's memory"),
)

GPU_IDEAS: Final[Mapping[str, Idea]] = MappingProxyType(
    {
        "cross_entropy": Idea("cross_entropy_triton", "", "maximum and sum in one pass: the logits are read once"),
        "layernorm_residual": Idea("layernorm_residual_triton", "", "a row is read once and stays in registers"),
        "linear_gelu": Idea("linear_gelu_triton", "", "GELU while the tile is in registers: no pass over the product"),
        "matmul": Idea("matmul_triton", "", "tiles in full float32: how near to the library does plain Triton come?"),
        "rmsnorm": Idea("rmsnorm_triton", "", "a row stays in registers: one read, one write"),
    }
)
"""Bundled task → its one candidate, played on a GPU alone; the softmax has its Triton candidate above."""

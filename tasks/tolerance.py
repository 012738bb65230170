"""How far from the reference an answer may be, from how far the reference itself is from its float64 run. No torch.

An element is right when |got - want| <= atol + rtol * |want|. Both numbers are found by qualification for each output
of a workload under a distribution, so that the reference's own error fits `ROOM` times; a floor by dtype leaves room
for another order of summation where the reference was lucky, and a cap keeps the worst element from being anything.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from pydantic import Field

from kernelgate.tasks.model import Bound, Dtype, Frozen, Tolerance

ROOM: Final = 10.0
"""An honest kernel sums in another order: seen at 4096 terms, one after the other against a tree, is 8 times."""
SCALE_FLOOR: Final = 0.1
"""The absolute part is at least this share of the relative floor, times the median magnitude of the answer."""

ROUNDING: Final = ROOM * 2.0**-24
"""Nor less than this share of its root mean square: large terms that cancel in one element leave that behind, and
whether they do is luck of the draw."""

Source: TypeAlias = Literal["calibrated", "stated", "default"]


class Limits(NamedTuple):
    """Of one dtype, as parts of an answer's size."""

    floor: float
    """Never ask for more accuracy than this."""
    cap: float
    """Never accept a larger error than this; a reference whose own error is larger tells nothing."""
    smallest: float
    """Smallest normal number: what is below may be flushed to zero. Of float16 ten of the least: GPUs keep those."""


LIMITS: Final[dict[Dtype, Limits]] = {
    # Two roundings of a half number may lie two units in the last place apart; float32 leaves room for long sums, and
    # none for a half-precision input, which is off by up to 5e-4.
    "float32": Limits(1e-4, 1e-2, 1.1754944e-38),
    "complex": Limits(1e-4, 1e-2, 1.1754944e-38),
    "float16": Limits(2e-3, 5e-2, 10 * 2.0**-24),
    "bfloat16": Limits(1.6e-2, 1e-1, 1.1754944e-38),
}
"""Dtypes that float64 can judge; the others have stated or default tolerances."""


class OutputFacts(Frozen):
    """One output of the reference beside its float64 run, and the bound that follows."""

    path: str
    dtype: Dtype
    source: Source
    why: str = ""
    """Why float64 could not tell, where a tolerance was asked of it."""
    own_rel: float = Field(default=0.0, ge=0)
    """Largest error relative to the exact value, over elements of at least `rms`."""
    own_abs: float = Field(default=0.0, ge=0)
    """Largest error beyond the share that `rtol` leaves to the reference, over all elements."""
    noise_rel: float = Field(default=0.0, ge=0)
    """As `own_rel`, of a float64 run in which each operation is disturbed as float32 rounding would; see `rounding`."""
    noise_abs: float = Field(default=0.0, ge=0)
    """As `own_abs`, of that run."""
    size: float = Field(default=0.0, ge=0)
    """Median magnitude."""
    rms: float = Field(default=0.0, ge=0)
    """Root mean square."""
    rtol: float = Field(default=0.0, ge=0)
    atol: float = Field(default=0.0, ge=0)

    def bound(self, workload: str, distribution: str) -> Bound | None:
        """What answers are compared with; None where the task's tolerance for the dtype is."""
        if self.source != "calibrated":
            return None
        return Bound.model_validate({
            "workload": workload, "distribution": distribution, "output": self.path, "rtol": self.rtol,
            "atol": self.atol,
        })  # fmt: skip

    @property
    def beyond_cap(self) -> bool:
        """Whether the reference's own error is larger than any that is accepted, or rounding larger than the answer."""
        if self.source != "calibrated":
            return False
        limits = LIMITS[self.dtype]
        own = self.own_rel > limits.cap or self.own_abs > max(limits.cap * self.rms, limits.smallest)
        return own or self.noise_abs > max(self.rms, limits.smallest)


def rtol_of(dtype: Dtype, own_rel: float) -> float:
    """The relative part for a reference with this relative error of its own."""
    limits = LIMITS[dtype]
    return min(max(ROOM * own_rel, limits.floor), limits.cap)


def atol_of(dtype: Dtype, own_abs: float, size: float, rms: float, usual_rms: float = 0.0) -> float:
    """The absolute part; `own_abs` is what of the reference's error `rtol / ROOM` of each element leaves over.

    `usual_rms`: of the answer to normal inputs. Where others make it small, what it is the difference of is as large as
    ever: exp(x) - 1 is right to the rounding of 1.
    """
    limits = LIMITS[dtype]
    least = max(SCALE_FLOOR * limits.floor * size, ROUNDING * max(rms, usual_rms), limits.smallest)
    return max(min(max(ROOM * own_abs, least), limits.cap * rms), limits.smallest)


def scaled(tolerance: Tolerance, size: float) -> Tolerance:
    """A stated or default tolerance for an answer of this median magnitude: rounding grows with the numbers."""
    return tolerance.model_copy(update={"atol": tolerance.atol * max(1.0, size)})

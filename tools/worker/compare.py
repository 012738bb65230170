"""Is an answer right? |got - want| <= atol + rtol * |want| per element, in float64, in bounded pieces.

Of a stated tolerance atol is multiplied by max(1, size), the median magnitude of the expected answer: a sum of large
numbers is rounded where they are large. A calibrated bound holds as it stands.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import torch

from kernelgate.tasks.model import Bound, Dtype, Tolerance
from kernelgate.tasks.tolerance import scaled
from kernelgate.tools.kit.facts import Mismatch
from kernelgate.tools.worker.patterns import describe_pattern, pieces_of

PIECE_ELEMENTS: Final = (64 << 20) // 8
"""64 MiB of float64: a few temporaries of this size are all that a comparison needs beside its answers."""
SINGLE_PIECE_ELEMENTS: Final = (256 << 20) // 4
"""256 MiB of float32: two temporaries of this size are alive at a time."""
SINGLE_MARGIN: Final = 0.9
"""Rounding in single precision is a millionth of this margin."""
SMALLEST: Final = 1e-30
"""Relative errors are told against at least this: beside an expected zero there is none."""
SAMPLED_ELEMENTS: Final = 1 << 16
"""Enough for a median to two digits."""
SHOWN_MISMATCHES: Final = 5
_LARGEST: Final = sys.float_info.max
"""Stands for an error that overflows float64: no infinity crosses a border."""
_KINDS: Final[dict[torch.dtype, Dtype]] = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.bool: "bool",
}

_SINGLE: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})

Problem = Literal["none", "wrong_values", "nonfinite"]


@dataclass(frozen=True)
class Finding:
    """How one tensor compares with the expected one of the same shape and dtype."""

    problem: Problem
    wrong_share: float = 0.0
    worst_abs: float = 0.0
    worst_rel: float = 0.0
    first: tuple[Mismatch, ...] = ()
    pattern: str = ""


@dataclass
class _Tally:
    """What the pieces add up to."""

    wrong: int = 0
    nonfinite: bool = False
    worst_abs: float = 0.0
    worst_rel: float = 0.0


def dtype_kind(dtype: torch.dtype) -> Dtype:
    """The name under which a task's tolerances list a dtype."""
    if dtype in _KINDS:
        return _KINDS[dtype]
    if dtype.is_complex:
        return "complex"
    return "float8" if dtype.is_floating_point else "integer"


def compare_values(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance | Bound) -> Finding:
    """Compare two dense tensors of the same shape, dtype and device.

    `nonfinite` where nan or inf stand in one and not, or with another sign, in the other; else `wrong_values` where an
    element is outside the tolerance. Worst errors are over elements that are finite in both.
    """
    if want.numel() == 0:
        return Finding("none")
    if want.dtype.is_floating_point or want.dtype.is_complex:
        found, size = _surely_right(got, want, tolerance)
        if found is not None:
            return found
        tolerance = _scaled(tolerance, size)
    if _same_values(got, want):
        return Finding("none")
    tally = _Tally()
    for got_piece, want_piece in _pieces(got, want):
        _compare_piece(got_piece, want_piece, tolerance, tally)
    if tally.wrong == 0:
        return Finding("none", worst_abs=tally.worst_abs, worst_rel=tally.worst_rel)
    # Only a wrong answer pays for a mask of all its elements.
    mask = torch.cat([_compare_piece(*pieces, tolerance, _Tally()) for pieces in _pieces(got, want)])
    return Finding(
        problem="nonfinite" if tally.nonfinite else "wrong_values",
        wrong_share=tally.wrong / want.numel(),
        worst_abs=tally.worst_abs,
        worst_rel=tally.worst_rel,
        first=_first_mismatches(got, want, mask),
        pattern=describe_pattern(mask, tuple(want.shape)),
    )


def _scaled(tolerance: Tolerance | Bound, size: float) -> Tolerance | Bound:
    return tolerance if isinstance(tolerance, Bound) else scaled(tolerance, size)


def _surely_right(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance | Bound) -> tuple[Finding | None, float]:
    """A yes that single precision can give with a margin, several times faster; None where float64 must decide.

    With it comes the typical size of what was expected. On a GPU all is enqueued before the first finding is waited
    for, and there is one wait.
    """
    typical = typical_size(want)
    if want.dtype not in _SINGLE:
        return None, float(typical)
    findings: list[torch.Tensor] = []
    for got_piece, want_piece in _pieces(got, want, SINGLE_PIECE_ELEMENTS):
        wanted = want_piece.float()
        error = got_piece.float() - wanted
        largest = _largest(error)
        # Zero where zero was expected is no error; anything else there is infinitely large, and looked at again below.
        relative = error.div_(wanted).nan_to_num_(0.0, math.inf, -math.inf)
        findings.append(torch.stack((largest, _largest(relative))))
    # nan or inf anywhere makes the largest error one too, and the long way decides.
    found = torch.cat((torch.stack(findings).amax(0), typical.float().reshape(1))).cpu()
    worst_abs, worst_rel, size = float(found[0]), float(found[1]), float(found[2])
    if not math.isfinite(worst_abs):
        return None, size
    allowed = _scaled(tolerance, size)
    # Most answers are as near as that everywhere; only others pay for a bound of each element.
    if worst_abs > SINGLE_MARGIN * allowed.atol and not _all_within(got, want, allowed):
        return None, size
    if not math.isfinite(worst_rel):
        worst_rel = _worst_rel(got, want)
    return Finding("none", worst_abs=worst_abs, worst_rel=min(worst_rel, _LARGEST)), size


def _largest(error: torch.Tensor) -> torch.Tensor:
    """Largest magnitude, nan if there is one: read once, nothing written."""
    return torch.stack(torch.aminmax(error)).abs().amax()


def _all_within(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance | Bound) -> bool:
    findings: list[torch.Tensor] = []
    for got_piece, want_piece in _pieces(got, want, SINGLE_PIECE_ELEMENTS):
        wanted = want_piece.float()
        error = (got_piece.float() - wanted).abs_()
        room = wanted.abs().mul_(tolerance.rtol * SINGLE_MARGIN).add_(tolerance.atol * SINGLE_MARGIN)
        findings.append((error <= room).all())
    return bool(torch.stack(findings).all())


def _worst_rel(got: torch.Tensor, want: torch.Tensor) -> float:
    """Errors of finite answers relative to what was expected, to `SMALLEST` where that is less."""
    findings: list[torch.Tensor] = []
    for got_piece, want_piece in _pieces(got, want, SINGLE_PIECE_ELEMENTS):
        wanted = want_piece.float()
        error = got_piece.float() - wanted
        findings.append(_largest(error.div_(wanted.abs().clamp_min_(SMALLEST))))
    return float(torch.stack(findings).amax())


def typical_size(want: torch.Tensor) -> torch.Tensor:
    """Median magnitude of the finite elements: rounding grows with the numbers, and a few huge ones do not hide others.

    Over a regular sample of a large tensor; 0 if nothing is finite. One element, not waited for.
    """
    flat = want.reshape(-1)
    sample = flat[:: max(1, flat.numel() // SAMPLED_ELEMENTS)]
    magnitude = sample.abs().to(torch.float64)
    return magnitude.masked_fill_(~torch.isfinite(magnitude), math.nan).nanmedian().nan_to_num(0.0)


def _same_values(got: torch.Tensor, want: torch.Tensor) -> bool:
    """A quick yes; nan makes it a no, and the long way decides (as it does for bytes: a bool may hold a 7)."""
    return got.dtype.itemsize > 1 and all(torch.equal(*pieces) for pieces in _pieces(got, want))


def _pieces(
    got: torch.Tensor, want: torch.Tensor, elements: int = PIECE_ELEMENTS
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return zip(pieces_of(got.reshape(-1), elements), pieces_of(want.reshape(-1), elements), strict=True)


def _compare_piece(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance | Bound, tally: _Tally) -> torch.Tensor:
    """The mask of wrong elements; adds to the tally."""
    if got.dtype is torch.bool:
        # A byte that is neither 0 nor 1 is no truth value: it is compared as it lies there.
        got, want = got.view(torch.uint8), want.view(torch.uint8)
    if not got.dtype.is_floating_point and not got.dtype.is_complex:
        wrong = _compare_integers(got, want, tolerance, tally)
    elif got.dtype.is_complex:
        wrong = _compare_floats(torch.view_as_real(got), torch.view_as_real(want), tolerance, tally).any(dim=-1)
    else:
        wrong = _compare_floats(got, want, tolerance, tally)
    tally.wrong += int(wrong.sum().item())
    return wrong


def _compare_integers(
    got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance | Bound, tally: _Tally
) -> torch.Tensor:
    differs = got != want
    if not bool(differs.any()):
        return differs
    # Exact for what fits in 53 bits; equality above is exact for all.
    error = (got.to(torch.float64) - want.to(torch.float64)).abs()
    _note_worst(error, want.to(torch.float64).abs(), tally)
    if tolerance.atol == 0 and tolerance.rtol == 0:
        return differs
    return differs & (error > tolerance.atol + tolerance.rtol * want.to(torch.float64).abs())


def _compare_floats(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance | Bound, tally: _Tally) -> torch.Tensor:
    got, want = got.to(torch.float64), want.to(torch.float64)
    magnitude = want.abs()
    error = (got - want).abs()
    wrong = ~(error <= tolerance.atol + tolerance.rtol * magnitude)
    finite = torch.isfinite(got) & torch.isfinite(want)
    if bool(finite.all()):
        _note_worst(error, magnitude, tally)
        return wrong
    # inf - inf is nan, and inf <= inf is true: where either is not finite only its kind and sign count.
    alike = (torch.isnan(got) & torch.isnan(want)) | ((got == want) & ~finite)
    differs = ~finite & ~alike
    tally.nonfinite = tally.nonfinite or bool(differs.any())
    _note_worst(torch.where(finite, error, 0.0), torch.where(finite, magnitude, 0.0), tally)
    return torch.where(finite, wrong, differs)


def _note_worst(error: torch.Tensor, magnitude: torch.Tensor, tally: _Tally) -> None:
    relative = torch.where(magnitude > 0, error / magnitude, 0.0)
    tally.worst_abs = max(tally.worst_abs, min(float(error.max().item()), _LARGEST))
    tally.worst_rel = max(tally.worst_rel, min(float(relative.max().item()), _LARGEST))


def _first_mismatches(got: torch.Tensor, want: torch.Tensor, mask: torch.Tensor) -> tuple[Mismatch, ...]:
    # The first of each true run would do; argmax over the rest of the mask avoids a list of all.
    found: list[int] = []
    start = 0
    while len(found) < SHOWN_MISMATCHES and start < mask.numel():
        rest = mask[start:]
        step = int(rest.view(torch.uint8).argmax().item())
        if not bool(rest[step]):
            break
        found.append(start + step)
        start += step + 1
    got_flat, want_flat = got.reshape(-1), want.reshape(-1)
    return tuple(
        Mismatch(index=_unravelled(at, tuple(want.shape)), got=_text(got_flat[at]), want=_text(want_flat[at]))
        for at in found
    )


def _unravelled(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(reversed(index))


def _text(element: torch.Tensor) -> str:
    if element.dtype is torch.bool:
        byte = int(element.view(torch.uint8).item())
        return {0: "False", 1: "True"}.get(byte, f"byte {byte}, no truth value")
    value = element.to(torch.float32).item() if dtype_kind(element.dtype) == "float8" else element.item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)

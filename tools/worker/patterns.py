"""Where wrong elements lie, and what a wrong answer equals: hints for whoever wrote the kernel."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import torch

LooksLike = Literal["", "zeros", "input", "constant", "previous_output", "low_precision"]
MAX_LISTED: Final = 1 << 22
"""Up to so many wrong elements are listed to look for a period."""
LARGEST_PERIOD: Final = 4096
NEAR_SHARE: Final = 0.02
"""Of an element and of the typical size: a product of bfloat16 numbers errs by up to 0.8 %, sums of them by more."""
SAMPLED_ELEMENTS: Final = 1 << 16
PIECE_ELEMENTS: Final = 1 << 25
"""Looked at at once: what is computed on the way to an answer about a large tensor needs no memory of its size."""


def describe_pattern(mask: torch.Tensor, shape: tuple[int, ...]) -> str:
    """One phrase for where a flat mask of wrong elements is true, or an empty text if it forms no pattern.

    `shape` is the answer's; rows are all dimensions but the last together.
    """
    wrong = count_true(mask)
    if wrong == 0:
        return ""
    if wrong == mask.numel():
        return "every element" if wrong > 1 else ""
    if len(shape) >= 2 and shape[-1] > 1 and mask.numel() > shape[-1]:
        table = mask.view(-1, shape[-1])
        found = _by_tile(table, wrong) or _by_rows(table) or _by_columns(table)
        if found:
            return found
    return _by_position(mask, wrong)


def count_true(mask: torch.Tensor) -> int:
    """How many elements are true; a sum over all at once would first copy the mask as eight bytes each."""
    return sum(int(piece.sum().item()) for piece in pieces_of(mask.reshape(-1), PIECE_ELEMENTS))


def looks_like(got: torch.Tensor, inputs: Iterable[torch.Tensor]) -> LooksLike:
    """Something telling that a wrong answer equals: zeros, a constant, an input."""
    if got.numel() < 2:
        return ""
    if not bool(got.to(torch.bool).any()):
        return "zeros"
    flat = got.reshape(-1)
    if bool((flat == flat[0]).all()):
        return "constant"
    alike = (one for one in inputs if one.numel() == got.numel() and one.dtype == got.dtype)
    return "input" if any(torch.equal(one.reshape(-1), flat) for one in alike) else ""


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes: nan is like itself."""
    if one.dtype != other.dtype or one.numel() != other.numel():
        return False
    return torch.equal(*(t.reshape(-1).contiguous().view(torch.uint8) for t in (one, other)))


def is_near(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether a wrong answer in single or double precision is as near everywhere as half precision would come."""
    if want.dtype not in (torch.float32, torch.float64) or want.numel() < 2:
        return False
    flat = want.reshape(-1)
    typical = flat[:: max(1, flat.numel() // SAMPLED_ELEMENTS)].abs().median()
    pieces = zip(pieces_of(got.reshape(-1), PIECE_ELEMENTS), pieces_of(flat, PIECE_ELEMENTS), strict=True)
    return all(bool(((one - other).abs() <= NEAR_SHARE * (other.abs() + typical)).all()) for one, other in pieces)


def pieces_of(flat: torch.Tensor, elements: int) -> Iterator[torch.Tensor]:
    """A flat tensor from its start on, so many elements at a time."""
    return (flat[at : at + elements] for at in range(0, flat.numel(), elements))


def _by_tile(table: torch.Tensor, wrong: int) -> str:
    """A rectangle that is wrong throughout, and neither whole rows nor whole columns."""
    sides = (table.any(dim=1).nonzero().flatten(), table.any(dim=0).nonzero().flatten())
    (top, bottom), (left, right) = ((int(side[0].item()), int(side[-1].item())) for side in sides)
    height, width = bottom - top + 1, right - left + 1
    if min(height, width) < 2 or height == table.shape[0] or width == table.shape[1] or height * width != wrong:
        return ""
    return f"one tile: rows {top} to {bottom}, columns {left} to {right}"


def _by_rows(table: torch.Tensor) -> str:
    rows, columns = table.shape
    touched = table.any(dim=1)
    count = int(touched.sum().item())
    if count == rows:
        return ""
    whole = bool(table[touched].all())
    kind = "rows, whole" if whole else "rows"
    where = _run(touched, count)
    if where == "tail":
        return f"only in the last {count} of {rows} {kind}"
    if where == "head":
        return f"only in the first {count} of {rows} {kind}"
    if where and count > 1:
        return f"only in {count} of {rows} {kind}: {where}"
    if whole and columns > 1:
        return f"whole rows: {count} of {rows}"
    return ""


def _by_columns(table: torch.Tensor) -> str:
    columns = table.shape[1]
    touched = table.any(dim=0)
    count = int(touched.sum().item())
    if count == columns:
        return ""
    where = _run(touched, count)
    if where == "tail":
        return f"only in the last {count} of {columns} columns"
    if where == "head":
        return f"only in the first {count} of {columns} columns"
    return f"only in {count} of {columns} columns: {where}" if where and count > 1 else ""


def _by_position(mask: torch.Tensor, wrong: int) -> str:
    where = _run(mask, wrong)
    if wrong < 2 or not where:
        return ""
    if where in ("tail", "head"):
        return f"only the {'last' if where == 'tail' else 'first'} {wrong} of {mask.numel()} elements"
    return f"only {wrong} of {mask.numel()} elements: {where}"


def _run(flags: torch.Tensor, count: int) -> str:
    """`tail`, `head`, `one block from 8 to 15`, `every 4th from 3 on`, or nothing."""
    if count > MAX_LISTED:
        return ""
    at = flags.nonzero().flatten()
    first, last = int(at[0].item()), int(at[-1].item())
    if last - first + 1 == count:
        if last == flags.numel() - 1:
            return "tail"
        return "head" if first == 0 else f"one block from {first} to {last}"
    steps = at[1:] - at[:-1]
    step = int(steps[0].item())
    periodic = count >= 3 and step <= LARGEST_PERIOD and bool((steps == step).all())
    return f"every {_ordinal(step)} from {first} on" if periodic else ""


def _ordinal(number: int) -> str:
    """`2nd`, `11th`, `23rd`."""
    last = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"

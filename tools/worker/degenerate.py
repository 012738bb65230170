"""Sizes at which a reference has lost what it computes: a norm over one number makes zero of whatever comes in.

Whether two answers are alike would tell more, but also of healthy ones, which a rectifier makes zero on a file's own
inputs and on no other distribution.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

FEWEST_NORMALISED: Final = 4
"""Of one number a norm makes zero, of two a sign; of four the values show."""
NONE: Final = 1 << 62


class Normalised(TorchFunctionMode):
    """The fewest numbers that any norm or softmax of a forward was taken over."""

    def __init__(self) -> None:
        """None yet."""
        super().__init__()
        self.fewest = NONE

    @property
    def hardly_anything(self) -> bool:
        """Whether one was taken over so few that the values do not show."""
        return self.fewest < FEWEST_NORMALISED

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Looks at the arguments and calls the function."""
        named = kwargs or {}
        count = _COUNTS.get(getattr(func, "__name__", ""))
        if count is not None and args and isinstance(args[0], torch.Tensor):
            # Arguments may come in a form of their own: then nothing is known of it.
            with contextlib.suppress(TypeError, ValueError, IndexError, ZeroDivisionError):
                self.fewest = min(self.fewest, count(args[0], *args[1:], **named))
        return func(*args, **named)


def _over_groups(x: torch.Tensor, num_groups: int, *_: Any, **__: Any) -> int:
    return x.numel() // x.shape[0] // num_groups


def _over_shape(x: torch.Tensor, normalized_shape: Sequence[int], *_: Any, **__: Any) -> int:
    return torch.Size(normalized_shape).numel()


def _over_each_channel(x: torch.Tensor, *_: Any, **__: Any) -> int:
    return x.numel() // x.shape[0] // x.shape[1]


def _over_dimension(x: torch.Tensor, dim: int = -1, *_: Any, **__: Any) -> int:
    return x.shape[dim]


_COUNTS: Final[dict[str, Callable[..., int]]] = {
    "group_norm": _over_groups,
    "layer_norm": _over_shape,
    "rms_norm": _over_shape,
    "instance_norm": _over_each_channel,
    "softmax": _over_dimension,
    "log_softmax": _over_dimension,
}

"""Counts the operations of a reference's forward, by the formulas of torch's own counter."""

import inspect
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from torch.utils._python_dispatch import TorchDispatchMode


@contextmanager
def _without_triton() -> Generator[None, None, None]:
    """Imports that would take triton along go without it: a later child decides how triton is imported."""
    if "triton" in sys.modules:
        yield
        return
    sys.modules["triton"] = None  # type: ignore[assignment]  # import's own sign for "there is none"
    try:
        yield
    finally:
        del sys.modules["triton"]


with _without_triton():
    from torch.utils.flop_counter import flop_registry


ModeT = TypeVar("ModeT", bound=type[TorchDispatchMode])


def uncompiled(mode: ModeT) -> ModeT:
    """Torch wraps a mode's method so that its first call imports the compiler; nothing here is ever compiled."""
    wrapped: Any = vars(mode)["__torch_dispatch__"]
    setattr(mode, "__torch_dispatch__", inspect.unwrap(wrapped))  # noqa: B010  mypy knows it as a method
    return mode


@uncompiled
class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """While active, adds up matrix products, convolutions and attention in `total`.

    Lighter than `FlopCounterMode`, whose first operation imports torch's compiler (1–3 s).
    """

    def __init__(self) -> None:
        """Nothing counted yet."""
        super().__init__()  # type: ignore[no-untyped-call]  # of torch  # pyright: ignore[reportUnknownMemberType]
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operator and add its operations."""
        result = func(*args, **(kwargs or {}))
        formula: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += int(formula(*args, **(kwargs or {}), out_val=result))
        return result

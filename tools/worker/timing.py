"""The one loop that both sides time calls with, and the state that is the same before each call."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

import torch

from kernelgate.tasks.model import Precision
from kernelgate.tools.worker.heap import keep_freed_memory
from kernelgate.tools.worker.inputs import reseed as set_seed

_CLOCK: Final = time.perf_counter_ns
"""Bound before any candidate is loaded, so that replacing `time.perf_counter_ns` changes nothing here."""
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a forward."""


def nothing() -> None:
    """Before a call that needs nothing restored."""


def dropped(index: int, output: object) -> None:
    """Behind a call whose answer nobody needs."""


def time_calls(
    forward: Callable[..., Any],
    pool: Mapping[int, Arguments],
    order: Sequence[int],
    before: Callable[[], None],
    after: Callable[[int, Any], None],
    clock: Callable[[], int] = _CLOCK,
) -> list[int]:
    """Call `forward` on pool entries in this order, each call timed on its own clock (ns).

    The window holds `forward` only. What is restored before it, and `after` (which takes the output to safety, so
    that neither a reused output buffer nor late work can change it), lie outside. Gradients are off.
    """
    samples: list[int] = []
    with torch.no_grad():
        for index in order:
            positional, named = pool[index]
            before()
            start = clock()
            output = forward(*positional, **named)
            end = clock()
            samples.append(end - start)
            after(index, output)
            del output  # freed outside the window, and before the next output needs memory
    return samples


class Restorer:
    """Keeps a module's buffers as they were when it was made, so that each call starts from the same state."""

    def __init__(self, module: torch.nn.Module, names: Container[str] | None = None) -> None:
        """Copies the buffers (a BatchNorm's running statistics, a counter).

        Args:
            module: whose buffers.
            names: only these, those that the reference has; a candidate's own (a packed weight, say) are its affair.
        """
        named = [buffer for name, buffer in module.named_buffers() if names is None or name in names]
        self._saved = [(buffer, buffer.detach().clone()) for buffer in named]

    def changed(self) -> bool:
        """Whether any buffer differs from what was saved."""
        return any(not torch.equal(buffer, saved) for buffer, saved in self._saved)

    def restore(self) -> None:
        """Put the saved values back."""
        for buffer, saved in self._saved:
            buffer.copy_(saved)

    def before_call(self, seed: int, *, reseed: bool, restore: bool) -> Callable[[], None]:
        """What to do before each call; both sides do the same."""
        if reseed and restore:

            def both() -> None:
                set_seed(seed)
                self.restore()

            return both
        if reseed:
            return lambda: set_seed(seed)
        return self.restore if restore else nothing


def apply_policy(precision: Precision, threads: int) -> None:
    """Matrix precision, threads and heap of this process, the same on both sides. Process-wide settings."""
    keep_freed_memory()
    allow = precision == "tf32"
    torch.set_float32_matmul_precision("high" if allow else "highest")
    if torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]  # of torch
        torch.backends.cuda.matmul.allow_tf32 = allow
        torch.backends.cudnn.allow_tf32 = allow
    torch.set_num_threads(threads)

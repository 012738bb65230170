"""A reference run otherwise than as it stands: in float64, in half precision, with other weights."""

import contextlib
import copy
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, Literal

import torch

from kernelgate.tasks.model import Precision
from kernelgate.tools.worker import inputs, memory
from kernelgate.tools.worker.rounding import Rounded, disturbed
from kernelgate.tools.worker.structure import Unsupported, call_arguments, leaves, replaced
from kernelgate.tools.worker.timing import Restorer, nothing, time_calls

Kind = Literal["exact", "half", "weights"]
_DROPPED_BITS: Final[dict[Precision, int]] = {"ieee": 13, "tf32": 16}
"""Of float32's 23 bits of mantissa: what TF32 and float16 leave out and, where TF32 is allowed, what bfloat16 does."""
_WIDE: Final = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


class CannotTell(Exception):
    """The reference does not run this way; the message is part of a sentence."""


class Variant:
    """A copy of a reference module, changed; the reference itself stays as it is."""

    def __init__(self, module: torch.nn.Module, kind: Kind, precision: Precision, device: str) -> None:
        """Raises `CannotTell` where the module cannot be copied, or has no weights to exchange."""
        self._kind, self._device = kind, device
        self._precision: Precision = precision
        with self._told():
            self._module = copy.deepcopy(module)
            if kind == "exact":
                self._module.to(torch.float64)
            elif kind == "half":
                self._on_state(self._round)
            elif not self._on_state(_another, weights_only=True):
                raise CannotTell("it has no weights")
            self._restorer = Restorer(self._module)

    def answer(self, arguments: object, seed: int, *, rounded: bool = False, keep_whole: bool = False) -> Any:
        """The answer to the same arguments, as the reference's is nested; raises `CannotTell`.

        With `rounded`, inputs and the result of each operation are disturbed as float32 rounding would; with
        `keep_whole` no inputs of whole numbers, which may be indices.
        """
        with self._told(), self._defaults():
            given = arguments if self._kind == "weights" else replaced(arguments, self._enter)
            if rounded:
                given = replaced(given, partial(disturbed, keep_whole=keep_whole))
            inputs.reseed(seed)
            self._restorer.restore()
            outputs: list[object] = []
            mode: Any = Rounded() if rounded else contextlib.nullcontext()  # type: ignore[no-untyped-call]  # of torch
            with mode:
                time_calls(
                    self._module, {0: call_arguments(given)}, [0], nothing, lambda _, output: outputs.append(output)
                )
            return replaced(outputs[0], self._leave)

    def _on_state(self, change: Callable[[torch.Tensor], torch.Tensor], *, weights_only: bool = False) -> int:
        state: list[torch.Tensor] = list(self._module.parameters())
        if not weights_only:
            state += self._module.buffers()
        floats = [tensor for tensor in state if tensor.is_floating_point()]
        with torch.no_grad():
            for tensor in floats:
                tensor.copy_(change(tensor))
        return len(floats)

    def _enter(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._kind == "exact":
            if tensor.is_floating_point():
                return tensor.to(torch.float64)
            return tensor.to(_WIDE.get(tensor.dtype, tensor.dtype)) if tensor.is_complex() else tensor
        return self._round(tensor)

    def _leave(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().resolve_conj().resolve_neg().contiguous()

    def _round(self, tensor: torch.Tensor) -> torch.Tensor:
        return halved(tensor, self._precision)

    @contextlib.contextmanager
    def _defaults(self) -> Generator[None, None, None]:
        """Constants that a forward makes are in float64 too."""
        if self._kind != "exact":
            yield
            return
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)

    @contextlib.contextmanager
    def _told(self) -> Generator[None, None, None]:
        bound = memory.bounded(memory.available_bytes()) if self._device == "cpu" else contextlib.nullcontext()
        try:
            with bound, torch.no_grad():
                yield
        except CannotTell:
            raise
        except Unsupported as error:
            raise CannotTell(str(error)) from error
        except Exception as error:
            text = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            raise CannotTell(
                f"it does not run in {'float64' if self._kind == 'exact' else 'this way'} ({text})"
            ) from error


def halved(tensor: torch.Tensor, precision: Precision) -> torch.Tensor:
    """Float32 rounded to the mantissa of half precision, its range as it is; everything else unchanged."""
    if tensor.dtype is not torch.float32:
        return tensor
    bits = _DROPPED_BITS[precision]
    words = tensor.detach().contiguous().view(torch.int32)
    kept = (words + (1 << (bits - 1))) & ~((1 << bits) - 1)
    return torch.where(torch.isfinite(tensor), kept.view(torch.float32), tensor)


def exact_leaves(expected: object, exact: object) -> dict[str, torch.Tensor]:
    """Of each float output its float64 value by path; raises `CannotTell` where the two are not alike."""
    found = dict(leaves(exact))
    matched: dict[str, torch.Tensor] = {}
    for path, want in leaves(expected):
        if not isinstance(want, torch.Tensor) or not (want.is_floating_point() or want.is_complex()):
            continue
        value = found.get(path)
        if not isinstance(value, torch.Tensor) or value.shape != want.shape:
            raise CannotTell("its answer in float64 has another form")
        if value.dtype not in (torch.float64, torch.complex128):
            raise CannotTell(f"it computes in {str(value.dtype).removeprefix('torch.')} whatever comes in")
        matched[path] = value
    return matched


def _another(tensor: torch.Tensor) -> torch.Tensor:
    """Other weights of about the same size; zeros and ones, too, become something else."""
    spread = float(tensor.float().abs().mean()) or 1.0
    return tensor + torch.randn_like(tensor) * (0.5 * spread)

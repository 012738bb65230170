"""Drawing inputs: as `get_inputs` makes them, or with the values of another distribution. From a secret seed."""

import math
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import torch
from torch.overrides import TorchFunctionMode

from kernelgate.tasks.model import Distribution, Domain
from kernelgate.tools.worker.structure import Unsupported, leaves, replaced, tensors_in

LARGE: Final = 40.0
"""Standard deviation of `large`: an exponential without its maximum taken off overflows, sums of squares do not."""
SMALL: Final = 1e-3
SPIKE: Final = 100.0
OFFSET: Final = (3.0, 0.5)
"""Mean and standard deviation of `offset`: nothing is near zero, nothing has the other sign."""
SPIKE_EVERY: Final = 1000
"""One element in so many is a spike, at least one."""
_RANDOM_FACTORIES: Final = frozenset({
    "rand", "randn", "randint", "normal", "uniform_", "normal_", "random_", "bernoulli_",
})  # fmt: skip
_CONTINUOUS: Final = frozenset({"rand", "randn", "normal", "uniform_", "normal_"})
_FACTORIES: Final = _RANDOM_FACTORIES | {"zeros", "ones", "full", "empty", "zero_", "fill_"}
_TRANSPARENT: Final = frozenset({
    "to", "half", "float", "double", "bfloat16", "cuda", "cpu", "contiguous", "clone", "requires_grad_", "detach",
    "t", "transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "flatten", "movedim",
})  # fmt: skip
"""What may be done to a drawn tensor without its values being built by an operation."""
_MOVING: Final = frozenset({"normal", "uniform", "large", "small", "mixed", "spikes", "offset"})
_LEANING: Final = frozenset({"uniform", "large", "small", "offset"})
"""Of these, those whose positive float32 numbers are rounded one way by half precision."""
_ROUNDS_UP: Final = 1 << 15 | 1 << 12
"""The first bits of float32's mantissa that bfloat16 and TF32 leave out: without them both round down."""
_ROUNDS_FAR: Final = 1 << 14 | 1 << 11
"""The bits behind those: with them both round far."""
LEANING_BITS: Final = _ROUNDS_UP | _ROUNDS_FAR
"""Who gives a drawn number other bits of its fraction leaves these as they are."""


@dataclass(frozen=True)
class Drawn:
    """One set of inputs, private to the referee."""

    arguments: Any
    """What `get_inputs` returned, floats transformed."""
    exchangeable: tuple[int, ...]
    """Positions in `tensors` of those whose elements are independent draws: reordered they are as good an input."""
    continuous: tuple[int, ...] = ()
    """Of these, those drawn from a density: with values close by they are as good an input."""

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All input tensors in order."""
        return tensors_in(self.arguments)


class _Origins(TorchFunctionMode):
    """Notes which tensors come straight from a factory (`torch.randn`), and which were built by an operation."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[torch.Tensor] = []  # alive, so that an id is never used twice
        self._plain: dict[int, str] = {}
        """What made a tensor, by its id."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            name = getattr(func, "__name__", "")
            if name in _FACTORIES:
                self._note(result, name)
            elif name in _TRANSPARENT and args and id(args[0]) in self._plain:
                self._note(result, self._plain[id(args[0])])
            elif name.endswith("_") and not name.endswith("__"):
                self._plain.pop(id(result), None)
        return result

    def _note(self, tensor: torch.Tensor, factory: str) -> None:
        self._kept.append(tensor)
        self._plain[id(tensor)] = factory

    def is_plain(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._plain

    def is_random(self, tensor: torch.Tensor) -> bool:
        return self._plain.get(id(tensor), "") in _RANDOM_FACTORIES

    def is_continuous(self, tensor: torch.Tensor) -> bool:
        return self._plain.get(id(tensor), "") in _CONTINUOUS and tensor.is_floating_point()


@contextmanager
def seeded(seed: int) -> Generator[None, None, None]:
    """Python's and torch's random numbers from this seed; Python's state is put back after."""
    state = random.getstate()
    random.seed(seed)
    reseed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def reseed(seed: int) -> None:
    """Torch's random numbers from this seed, on the CPU and on CUDA where that is in use.

    Not `torch.manual_seed`, which formats a traceback for CUDA's first use later: 0.6 ms a call.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # of torch
        torch.cuda.manual_seed_all(seed)


def generator_state() -> torch.Tensor:
    """State of torch's generators, the device's behind the CPU's where CUDA is in use: changed means that they drew."""
    states = [torch.default_generator.get_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # of torch
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)


def on_device(arguments: object, device: str) -> Any:
    """The same nesting with tensors that were made elsewhere moved to the device; `arguments` itself if there are none.

    Raises `Unsupported` for what cannot be lent.
    """
    kind = torch.device(device).type
    if all(tensor.device.type == kind for tensor in tensors_in(arguments)):
        return arguments
    return replaced(arguments, lambda tensor: tensor.to(device))


def draw(
    get_inputs: Callable[[], object],
    seed: int,
    device: str,
    distribution: Distribution,
    domains: Sequence[Domain],
) -> Drawn:
    """Inputs of one call, made on the device under `seed`.

    Float tensors that come straight from a factory get the values of `distribution`, within their domain; all others
    (integers, bools, scalars, whatever an operation built) are as `get_inputs` drew them. Raises what `get_inputs`
    raises, and `Unsupported` for inputs that cannot be lent.
    """
    origins = _Origins()
    with seeded(seed), torch.no_grad():
        with torch.device(device), origins:
            arguments = on_device(get_inputs(), device)
        positions = list(cast("Sequence[object]", arguments)) if isinstance(arguments, list | tuple) else [arguments]
        exchangeable: list[int] = []
        continuous: list[int] = []
        count = 0
        for position, argument in enumerate(positions):
            domain = domains[position] if position < len(domains) else "any"
            for _, leaf in leaves(argument):
                if not isinstance(leaf, torch.Tensor):
                    continue
                if leaf.layout is not torch.strided or leaf.is_quantized:
                    raise Unsupported(f"input {position} is a {leaf.layout} tensor; only dense ones can be lent")
                if distribution != "original" and origins.is_plain(leaf):
                    transform(leaf, distribution, domain)
                elif origins.is_continuous(leaf) and domain in ("any", "positive"):
                    lean(leaf)  # what is timed too: half precision for that alone would pay
                if _is_exchangeable(leaf, origins, distribution, domain):
                    exchangeable.append(count)
                    filled = distribution in _MOVING and origins.is_plain(leaf) and leaf.is_floating_point()
                    if (filled or origins.is_continuous(leaf)) and not domain.startswith("index("):
                        continuous.append(count)
                count += 1
    return Drawn(arguments, tuple(exchangeable), tuple(continuous))


def transform(tensor: torch.Tensor, distribution: Distribution, domain: Domain) -> None:
    """Overwrite a float tensor with draws of a distribution from torch's generator, kept within the domain.

    Leaves alone what the distribution or domain says nothing about: other dtypes, overlapping memory, zeros where a
    value must be positive.
    """
    if tensor.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16) or _overlaps(tensor):
        return
    if domain.startswith("index("):
        tensor.copy_(torch.randint(0, max(1, int(domain[6:-1])), tensor.shape, device=tensor.device))
        return
    if domain != "any" and distribution not in _MOVING:
        return
    _fill(tensor, distribution)
    if domain == "positive":
        tensor.abs_().add_(torch.finfo(tensor.dtype).tiny)
    elif domain == "probability":
        tensor.copy_(torch.softmax(tensor.to(torch.float32), dim=-1) if tensor.dim() else tensor.sigmoid())
        return
    if distribution in _LEANING:
        lean(tensor)


def lean(tensor: torch.Tensor) -> None:
    """Give positive float32 numbers mantissas that bfloat16, TF32 and float16 round down, 3/8 of a place on average.

    Rounding that goes both ways averages out in a mean over many elements, and half precision passes for float32 there.
    """
    if tensor.dtype is not torch.float32 or _overlaps(tensor):
        return
    words = tensor.view(torch.int32)
    leaning = words.bitwise_and(~_ROUNDS_UP).bitwise_or_(_ROUNDS_FAR)
    torch.where(words > 0, leaning, words, out=words)


def _fill(tensor: torch.Tensor, distribution: Distribution) -> None:
    fills: dict[Distribution, Callable[[], object]] = {
        "normal": tensor.normal_,
        "uniform": lambda: tensor.uniform_(-1, 1),
        "large": lambda: tensor.normal_(0, LARGE),
        "small": lambda: tensor.normal_(0, SMALL),
        "zeros": tensor.zero_,
        "ones": lambda: tensor.fill_(1),
        "denormal": lambda: tensor.normal_().mul_(torch.finfo(tensor.dtype).tiny / 8),
        "mixed": lambda: tensor.normal_().mul_(10 ** torch.empty_like(tensor).uniform_(-3, 2)),
        "spikes": lambda: _spike(tensor.normal_(0, 0.01)),
        "nonfinite": lambda: _sprinkle(tensor.normal_()),
        "offset": lambda: tensor.normal_(*OFFSET),
    }
    fills[distribution]()


def _spike(tensor: torch.Tensor) -> None:
    if tensor.numel() == 0:
        return
    chosen = torch.rand(tensor.shape, device=tensor.device) < 1 / SPIKE_EVERY
    if not bool(chosen.any()):
        chosen.flatten()[int(torch.randint(0, chosen.numel(), ()).item())] = True
    spikes = SPIKE * (1 + torch.rand_like(tensor) / 16)  # no two alike: which of them is the largest is a question
    tensor.copy_(torch.where(chosen, spikes, tensor))


def _sprinkle(tensor: torch.Tensor) -> None:
    """Nan and both infinities at a few places, each at least once where there is room."""
    values = (math.nan, math.inf, -math.inf)
    count = min(tensor.numel(), len(values) * max(1, tensor.numel() // (len(values) * SPIKE_EVERY)))
    places = torch.randperm(tensor.numel(), device=tensor.device)[:count]
    chosen = torch.tensor(values, dtype=tensor.dtype, device=tensor.device).repeat(count // len(values) + 1)[:count]
    mask = torch.zeros(tensor.numel(), dtype=torch.bool, device=tensor.device)
    mask[places] = True
    filled = torch.zeros(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    filled[places] = chosen
    tensor.copy_(torch.where(mask.view(tensor.shape), filled.view(tensor.shape), tensor))


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements share memory (expanded tensors): such cannot be written element by element."""
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _is_exchangeable(tensor: torch.Tensor, origins: _Origins, distribution: Distribution, domain: Domain) -> bool:
    filled = distribution in _MOVING and origins.is_plain(tensor) and tensor.is_floating_point()
    drawn = origins.is_random(tensor) or filled
    free = domain != "probability"
    fills_its_storage = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return drawn and free and tensor.numel() > 1 and fills_its_storage and not _overlaps(tensor)

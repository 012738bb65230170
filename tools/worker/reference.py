"""The reference of one workload, as the referee holds it: module, weights, facts, inputs, expected answers."""

import contextlib
import linecache
import secrets
import sys
import types
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelgate.tasks import source as task_source
from kernelgate.tasks.model import Distribution, Override, Task, Workload
from kernelgate.tools.kit.facts import WorkloadFacts
from kernelgate.tools.worker import inputs, memory
from kernelgate.tools.worker.degenerate import Normalised
from kernelgate.tools.worker.flops import FlopCount
from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.protocol import ALLOCATION_TEXTS
from kernelgate.tools.worker.reads import BytesRead
from kernelgate.tools.worker.sizing import Sizes, byte_size, main_dtype
from kernelgate.tools.worker.structure import Unsupported, call_arguments, leaves, replaced, tensors_in
from kernelgate.tools.worker.timing import Restorer, nothing, time_calls
from kernelgate.tools.worker.variants import CannotTell, Kind, Variant

SEED_BITS: Final = 62
SHRINK_WORK_BYTES: Final = 2 << 30
"""Weights and intermediate results of a task that is made small; a size that needs more is halved again."""

ENLARGED: Final = 6
"""So many of the next larger steps are tried where the first that fits is degenerate."""


class TaskError(Exception):
    """The task's own code failed, or its reference is none. The message is one sentence."""


class HeldWorkload:
    """A workload of a task, its reference module built when it is first needed."""

    def __init__(self, task: Task, workload: Workload, device: str) -> None:
        """Executes the task's source, and runs its forward once to size it.

        Raises `TaskError` where the task's code fails, `memory.DoesNotFit` where a task cannot be made small enough.
        """
        self._task = task
        self.name = workload.name
        self._model: _Built | None = None
        self._variants: dict[Kind, Variant] = {}
        self.device = device
        self.made_small = workload.shrink_to_bytes > 0
        self.overrides = workload.overrides
        """The constants that were replaced; of a task that is made small those that were halved."""
        if workload.shrink_to_bytes:
            self._code, self.sizes, self.overrides = _smallest_that_fits(
                task, workload.name, workload.shrink_to_bytes, device
            )
        else:
            self._code = _executed(task, workload.name, workload.overrides)
            self.sizes = _sized(self._code, task, workload.name, device)
        self.facts = WorkloadFacts(
            name=workload.name,
            held_out=workload.held_out,
            bytes_in=self.sizes.read_bytes,
            bytes_out=self.sizes.outputs_bytes,
            flops=self.sizes.flops,
            doubles=self.sizes.doubles,
        )

    def require_memory(self, times: int = 1) -> None:
        """Raises `memory.DoesNotFit` where a call with so many pool entries would not fit."""
        for needed, allowed in self._needed_and_allowed(times):
            if needed > allowed:
                raise memory.DoesNotFit(f"workload {self.name} of task {self._task.name}", needed, allowed)

    def fits(self, times: int = 1) -> bool:
        """Whether a call with so many pool entries would fit beside all that is in memory now."""
        return all(needed <= allowed for needed, allowed in self._needed_and_allowed(times))

    def crowded_out(self, times: int = 1) -> bool:
        """Whether a call would fit this GPU if nobody else had memory on it, and does not as it is."""
        lacking = [needed for needed, allowed in self._needed_and_allowed(times) if needed > allowed]
        return any(needed <= memory.whole_bytes(self.device) for needed in lacking)

    def _needed_and_allowed(self, times: int) -> list[tuple[int, int]]:
        """Bytes of a call with so many pool entries, by each limit that holds on the device."""
        lent = (self.sizes.inputs_bytes * times, self.sizes.outputs_bytes * times, self.sizes.weights_bytes)
        if self.device == "cpu":
            return [
                (memory.call_bytes(*lent), memory.available_bytes()),
                (memory.candidate_bytes(*lent), memory.CANDIDATE_BYTES),
            ]
        return [(memory.cuda_call_bytes(*lent), memory.available_bytes(self.device))]

    @property
    def built(self) -> "_Built":
        """The reference module with its weights; built on first use. Raises `TaskError`."""
        if self._model is None:
            with _as_task_error(self.name, "building Model"):
                self._model = _build(self._code, self._task.weight_seed, self.device)
        return self._model

    def forget(self) -> None:
        """Drop the module and its variants; the next use builds the same again."""
        self._model = None
        self._variants = {}

    def forget_variants(self) -> None:
        """Drop what only a qualification, or an answer that seemed wrong, needed."""
        self._variants = {}

    @property
    def has_check(self) -> bool:
        """Whether the task itself says which answers are right."""
        return callable(getattr(self._code, "check", None))

    def check(self, arguments: object, answer: object) -> str:
        """What the task's own `check(inputs, output)` has against an answer; empty if it is right.

        Raises `TaskError` where that raises, or returns something else.
        """
        with _as_task_error(self.name, "check()"), torch.no_grad():
            said = self._code.check(arguments, answer)
        if said is True or isinstance(said, str):
            return "" if said is True else said[:200] or "it is not right"
        if said is False:
            return "it is not right"
        raise TaskError(
            f"workload {self.name}, check() returned a {type(said).__name__}: it must return True, or False or a "
            "sentence that says what is wrong"
        )

    def exact(self, arguments: object, seed: int) -> Any:
        """The answer in float64; raises `CannotTell` where the reference draws random numbers or does not run so."""
        if self.built.reseed:
            raise CannotTell("it draws random numbers, which are others in float64")
        return self.variant("exact", arguments, seed)

    def rounded(self, arguments: object, seed: int) -> Any:
        """As `exact`, with every operation disturbed by what rounding to float32 may do; raises `CannotTell`."""
        indexed = any(domain.startswith("index(") for domain in self._task.domains)
        return self._varied("exact").answer(arguments, seed, rounded=True, keep_whole=indexed)

    def variant(self, kind: Kind, arguments: object, seed: int) -> Any:
        """The answer of a changed copy of the reference; raises `CannotTell`."""
        return self._varied(kind).answer(arguments, seed)

    def _varied(self, kind: Kind) -> Variant:
        if kind not in self._variants:
            self._variants[kind] = Variant(self.built.module, kind, self._task.precision, self.device)
        return self._variants[kind]

    def draw(self, distribution: Distribution, seed: int | None = None) -> Drawn:
        """Fresh inputs, under a seed from the operating system where none is given; raises `TaskError`."""
        seed = secrets.randbits(SEED_BITS) if seed is None else seed
        with _as_task_error(self.name, "get_inputs()"):
            return inputs.draw(self._code.get_inputs, seed, self.device, distribution, self._task.domains)

    def expect(self, arguments: object, seed: int) -> Any:
        """The reference's answer, copied, so that nobody else holds its memory. Raises `TaskError`.

        The first call also finds out whether the reference uses random numbers or changes its buffers.
        """
        built = self.built
        with _as_task_error(self.name, "forward"):
            inputs.reseed(seed)
            state = None if built.known else inputs.generator_state()
            built.restorer.restore()
            outputs: list[object] = []
            time_calls(
                built.module, {0: call_arguments(arguments)}, [0], nothing, lambda _, output: outputs.append(output)
            )
            if state is not None:
                built.reseed = not torch.equal(state, inputs.generator_state())
                built.restore = built.restorer.changed()
                built.known = True
            return replaced(outputs[0], _own_copy)


@dataclass
class _Built:
    """A reference module ready to be called."""

    module: torch.nn.Module
    init_arguments: object
    restorer: Restorer
    known: bool = False
    reseed: bool = True
    restore: bool = True

    @cached_property
    def plain_weights(self) -> tuple[str, ...]:
        """Those that are all ones or zeros, a norm's most often: what leaves them out changes nothing."""
        found = [(name, weight.detach()) for name, weight in self.module.named_parameters() if weight.numel()]
        return tuple(name for name, weight in found if bool((weight == 1).all()) or bool((weight == 0).all()))

    def before_call(self, seed: int) -> Callable[[], None]:
        """What is done before each timed call, on both sides."""
        return self.restorer.before_call(seed, reseed=self.reseed, restore=self.restore)


def hold(task: Task, device: str, kind: str) -> dict[str, HeldWorkload]:
    """All workloads of a task on a kind of device, smallest first; raises `TaskError`."""
    chosen = [w for w in task.workloads if kind in w.devices]
    if not chosen:
        raise TaskError(f"task {task.name} has no workload for a {kind} device")
    held = [HeldWorkload(task, workload, device) for workload in chosen]
    return {w.name: w for w in sorted(held, key=lambda w: w.facts.bytes_in + w.facts.bytes_out)}


def _own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A plain contiguous copy, without gradient, subclass or lazy conjugation."""
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _executed(task: Task, workload: str, overrides: dict[str, Override]) -> types.ModuleType:
    """The task's source as a module, with the workload's constants in place."""
    with _as_task_error(workload, "the reference file"):
        text = task_source.with_overrides(task.source, overrides)
        name = f"kernelgate_task_{task.digest[:12]}_{workload}"
        file = f"<reference of {task.name}, workload {workload}>"
        module = types.ModuleType(name)
        module.__file__ = file
        # dataclasses, torch.jit and inspect look the module and its lines up by name.
        sys.modules[name] = module
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), module.__dict__)
    for needed in ("Model", "get_inputs", "get_init_inputs"):
        if not callable(getattr(module, needed, None)):
            raise TaskError(f"the reference of workload {workload} defines no {needed}")
    return module


def _build(code: types.ModuleType, weight_seed: int, device: str) -> _Built:
    with inputs.seeded(weight_seed):
        init_arguments = code.get_init_inputs()
        # Drawing the arguments must not shift the weights: the candidate gets the arguments ready made.
        inputs.reseed(weight_seed)
        positional, named = call_arguments(init_arguments)
        with torch.device(device):  # large weights take seconds on the host
            module = code.Model(*positional, **named)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"Model is a {type(module).__name__}, no torch.nn.Module")
    module.to(device)
    return _Built(module, init_arguments, Restorer(module))


def _sized(code: types.ModuleType, task: Task, workload: str, device: str) -> Sizes:
    """Sizes from one forward, if there is memory for it; else from one on fake tensors, which need none.

    The latter imports torch's compiler (1–3 s): only a task about to be refused pays for that.
    """
    available = memory.available_bytes(device)
    with _as_task_error(workload, "a forward of the reference"):
        try:
            return _measured(code, task.weight_seed, device, available // 2, available)
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
        with FakeTensorMode(allow_non_fake_inputs=True):
            return _measured(code, task.weight_seed, device, available, available)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(text in str(error) for text in ALLOCATION_TEXTS)


def _measured(code: types.ModuleType, weight_seed: int, device: str, inputs_bytes: int, working_bytes: int) -> Sizes:
    """Sizes of one forward; on the CPU inputs and work may take so much memory, and allocations beyond fail."""
    normalised = Normalised()
    with torch.no_grad(), inputs.seeded(weight_seed):
        with _bound(device, inputs_bytes), torch.device(device):
            arguments = code.get_inputs()
        with _bound(device, working_bytes), FlopCount() as counter:
            positional, named = call_arguments(code.get_init_inputs())
            with torch.device(device):
                module = code.Model(*positional, **named)
            if not isinstance(module, torch.nn.Module):
                raise TypeError(f"Model is a {type(module).__name__}, no torch.nn.Module")
            if any(held.device != torch.device(device) for held in (*module.parameters(), *module.buffers())):
                module.to(device)  # which fails on fake parameters, even where they need not move
            weights = byte_size([*module.parameters(), *module.buffers()])
            arguments = inputs.on_device(arguments, device)
            positional, named = call_arguments(arguments)
            given = [*tensors_in(arguments), *module.parameters(), *module.buffers()]
            with BytesRead(given) as reads, normalised:
                answer = module(*positional, **named)
    if not any(isinstance(leaf, torch.Tensor | int | float) for _, leaf in leaves(answer)):
        raise TaskError("the reference returns neither a tensor nor a number")
    dtype = main_dtype([*tensors_in(arguments), *module.parameters()])
    return Sizes(
        byte_size(arguments), weights, byte_size(answer), counter.total, reads.total(), dtype,
        normalised.hardly_anything, any(t.dtype == torch.float64 for t in (*given, *tensors_in(answer))),
    )  # fmt: skip


def _bound(device: str, more_bytes: int) -> contextlib.AbstractContextManager[None]:
    return memory.bounded(more_bytes) if device == "cpu" else contextlib.nullcontext()


def _smallest_that_fits(
    task: Task, workload: str, limit: int, device: str
) -> tuple[types.ModuleType, Sizes, dict[str, Override]]:
    """The first shrink step that works and fits; where none does the last one that fits what any task may have.

    Raises `TaskError`, or `DoesNotFit` with the bytes needed.
    """
    smallest = 0
    failure = ""
    larger: list[dict[str, Override]] = []
    unmade: dict[str, Override] | None = None
    for overrides in task_source.shrink_steps(task.source):
        tried = _tried_size(task, workload, overrides, limit, device)
        if isinstance(tried, BaseException):
            failure = f"{type(tried).__name__}: {tried}"
            if isinstance(tried, MemoryError | RuntimeError) and _is_out_of_memory(tried):
                unmade = overrides
            larger.append(overrides)
            continue
        code, sizes = tried
        smallest = _lent_bytes(sizes)
        if smallest <= limit:
            better = _not_degenerate(task, workload, larger, limit, device) if sizes.degenerate else None
            return better or (code, sizes, overrides)
        larger.append(overrides)
    for overrides in reversed(larger if limit < task_source.SMALL_LIMIT_BYTES else ()):
        tried = _tried_size(task, workload, overrides, task_source.SMALL_LIMIT_BYTES, device)
        if not isinstance(tried, BaseException) and _lent_bytes(tried[1]) <= task_source.SMALL_LIMIT_BYTES:
            return (*tried, overrides)
    if smallest == 0 and unmade is not None:
        smallest = _bytes_unmade(task, workload, unmade, device)
    if smallest <= limit:
        raise TaskError(f"no size of task {task.name} runs: {failure}")
    raise memory.DoesNotFit(f"the smallest size of task {task.name}", smallest, limit)


def _lent_bytes(sizes: Sizes) -> int:
    return sizes.inputs_bytes + sizes.outputs_bytes


def _tried_size(
    task: Task, workload: str, overrides: dict[str, Override], limit: int, device: str
) -> tuple[types.ModuleType, Sizes] | BaseException:
    """A shrink step executed and measured, or what its code raised: it may break the task's own arithmetic."""
    try:
        code = _executed(task, workload, overrides)
        return code, _measured(code, task.weight_seed, device, 2 * limit, SHRINK_WORK_BYTES)
    except BaseException as error:  # noqa: BLE001  a reference may raise what it likes; another step may work
        return error


def _not_degenerate(
    task: Task, workload: str, larger: list[dict[str, Override]], limit: int, device: str
) -> tuple[types.ModuleType, Sizes, dict[str, Override]] | None:
    """A size at which the answer still has what it is made of, by other halvings within the limit, or the next larger.

    None where there is none: then all sizes are alike, and the task is judged as it is.
    """
    most = max(limit, task_source.SMALL_LIMIT_BYTES)
    even = [(step, limit) for step in task_source.even_steps(task.source)]
    for overrides, allowed in (*even, *((step, most) for step in larger[: -ENLARGED - 1 : -1])):
        tried = _tried_size(task, workload, overrides, allowed, device)
        if isinstance(tried, BaseException):
            continue
        code, sizes = tried
        if _lent_bytes(sizes) <= allowed and not sizes.degenerate:
            return code, sizes, overrides
    return None


def _bytes_unmade(task: Task, workload: str, overrides: dict[str, Override], device: str) -> int:
    """Inputs and outputs of a size that there is no memory for, from fake tensors; 0 where those cannot tell."""
    available = memory.available_bytes(device)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            code = _executed(task, workload, overrides)
            sizes = _measured(code, task.weight_seed, device, available, available)
    except BaseException:  # noqa: BLE001  the task's own code; its first failure is what is told
        return 0
    return _lent_bytes(sizes)


@contextlib.contextmanager
def _as_task_error(workload: str, where: str) -> Generator[None, None, None]:
    """Whatever the task's code raises becomes a `TaskError` that says where."""
    try:
        yield
    except (TaskError, memory.DoesNotFit):
        raise
    except Unsupported as error:
        raise TaskError(f"workload {workload}, {where}: {error}") from error
    except GeneratorExit:
        raise
    except BaseException as error:  # a reference may raise what it likes, SystemExit too
        said = memory.what_was_lacking(error) if isinstance(error, torch.OutOfMemoryError) else error
        raise TaskError(f"workload {workload}, {where} raised {type(error).__name__}: {said}") from error

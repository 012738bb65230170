"""What a candidate may ask of `torch.cuda` on a machine without a GPU, and fake CUDA tensors to trace it with.

Only for the candidate's own process, which dies after the call: `answer_queries` replaces functions for good.
"""

import contextlib
import ctypes
import importlib
import logging
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch._subclasses import fake_tensor

from kernelgate.tools.kit.occupancy import WARP_THREADS, Limits

GUARD_TABLE: Final = "_ZN3c104impl26device_guard_impl_registryE"
REGISTER_GUARD: Final = "_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"
CUDA_DEVICE_TYPE: Final = 1
"""`c10::DeviceType::CUDA`"""
VIRTUAL_FUNCTIONS: Final = 64
"""More than a device guard has in any version of torch so far (about 25)."""
ADDRESS_STEP: Final = 32
"""A storage's C++ object is 16-byte aligned, so 32 times its address is distinct and 512-byte aligned, as the memory
that torch allocates and that candidates are lent."""


class UnsupportedTorch(Exception):
    """This build of torch cannot hold fake CUDA tensors; nothing that the candidate did."""


def preload_dynamo() -> None:
    """Import `torch._dynamo`, which a fake mode imports when it is made: 2 s that each child would pay otherwise.

    It imports Triton too, where it finds it. That must not happen in a supervisor of the CPU device, whose children
    decide between Triton's interpreter and its compiler first: so Triton is hidden meanwhile, unless it is there.
    Starts no thread and runs no operation; about 150 MB.
    """
    hidden = "triton" not in sys.modules
    if hidden:
        sys.modules["triton"] = None  # type: ignore[assignment]  # python's way to make an import fail
    try:
        importlib.import_module("torch._dynamo.config")
    finally:
        if sys.modules["triton"] is None:
            has_triton: Any = importlib.import_module("torch.utils._triton").has_triton_package
            has_triton.cache_clear()  # it remembers
        if hidden:
            del sys.modules["triton"]


@contextlib.contextmanager
def replaced(owner: object, name: str, value: object) -> Generator[None]:
    """An attribute replaced for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class StandinStream:
    """The default stream of a device that is not there; also a context manager, as torch's streams are."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.device = torch.device("cuda", 0)

    def __enter__(self) -> "StandinStream":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def synchronize(self) -> None:
        """Nothing runs."""

    def wait_stream(self, stream: object) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: object) -> None:
        """Nothing to wait for."""

    def record_event(self, event: object = None) -> object:
        """An event that has happened."""
        return event if event is not None else StandinEvent()

    def query(self) -> bool:
        """All work is done."""
        return True


class StandinEvent:
    """An event that has always happened."""

    def __init__(self, *_: object, **__: object) -> None:
        """Takes what torch's event takes."""

    def record(self, stream: object = None) -> None:
        """Nothing to record."""

    def wait(self, stream: object = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing runs."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, other: object) -> float:
        """Milliseconds; nothing was measured."""
        return 1.0


def answer_queries(properties: SimpleNamespace) -> None:
    """Answer questions about the device for the target, where torch would raise because there is none.

    `is_available` and `device_count` keep telling the truth: whoever asks them first must not be sent to a GPU.
    No-op where CUDA is available.

    Args:
        properties: What `torch.cuda.get_device_properties` is to return.
    """
    if torch.cuda.is_available():
        return
    answers: dict[str, Callable[..., Any]] = {
        "get_device_properties": _always(properties),
        "get_device_capability": _always((properties.major, properties.minor)),
        "get_device_name": _always(properties.name),
        "current_device": _always(0),
        "current_stream": StandinStream,
        "default_stream": StandinStream,
        "stream": _entered,
        "mem_get_info": _always((properties.total_memory, properties.total_memory)),
        "is_current_stream_capturing": _always(value=False),
        "is_bf16_supported": _always(value=True),
        "_exchange_device": _always(0),
        "_maybe_exchange_device": _always(0),
        "Stream": StandinStream,
        "ExternalStream": StandinStream,
        "Event": StandinEvent,
    }
    done = ("set_device", "set_stream", "synchronize", "empty_cache", "init", "_lazy_init")
    answers |= {name: _always(None) for name in done}  # each its own: torch.compile keeps a table of torch's functions
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


@contextlib.contextmanager
def seemingly_available() -> Generator[None]:
    """Let `torch.cuda` say for a while that there is one GPU."""
    with replaced(torch.cuda, "is_available", _always(value=True)), replaced(torch.cuda, "device_count", _always(1)):
        yield


def properties_namespace(
    *, name: str, major: int, minor: int, multiprocessors: int, memory_bytes: int, l2_bytes: int, limits: Limits
) -> SimpleNamespace:
    """An object with the attributes of `torch.cuda.get_device_properties`."""
    return SimpleNamespace(
        name=name,
        major=major,
        minor=minor,
        total_memory=memory_bytes,
        multi_processor_count=multiprocessors,
        warp_size=WARP_THREADS,
        max_threads_per_multi_processor=limits.warps * WARP_THREADS,
        max_threads_per_block=limits.block_warps * WARP_THREADS,
        regs_per_multiprocessor=limits.registers,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=limits.block_shared_bytes,
        shared_memory_per_multiprocessor=limits.shared_bytes,
        L2_cache_size=l2_bytes,
        is_integrated=False,
        is_multi_gpu_board=False,
    )


def allow_fake_cuda_tensors() -> None:
    """Make torch accept operations on fake CUDA tensors without a GPU; raises `UnsupportedTorch`.

    Torch itself puts a do-nothing device guard in place where it was built with CUDA and no device is visible. In a
    build without CUDA there is no guard to be replaced, and operations as simple as `x[0]` fail. So a placeholder
    that answers 0 to every question (0 devices among them) is registered first, and torch then replaces it by its
    own guard, as it does in the other case.
    """
    private: Any = torch
    ensure: Callable[[], None] = private._C._ensureCUDADeviceGuardSet
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        guards = (ctypes.c_void_p * (CUDA_DEVICE_TYPE + 1)).in_dll(library, GUARD_TABLE)
        register: Any = getattr(library, REGISTER_GUARD)
    except (OSError, ValueError, AttributeError) as error:
        if torch.version.cuda is not None:
            ensure()
            return
        raise UnsupportedTorch(f"this build of torch offers no device guard to fill in: {error}") from None
    if not guards[CUDA_DEVICE_TYPE]:
        register.argtypes, register.restype = [ctypes.c_int8, ctypes.c_void_p], None
        zero = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 0)
        address = ctypes.cast(zero, ctypes.c_void_p).value
        table = (ctypes.c_void_p * VIRTUAL_FUNCTIONS)(*[address] * VIRTUAL_FUNCTIONS)
        placeholder = (ctypes.c_void_p * 1)(ctypes.addressof(table))
        register(CUDA_DEVICE_TYPE, ctypes.addressof(placeholder))
        ensure()
        if guards[CUDA_DEVICE_TYPE] == ctypes.addressof(placeholder):
            register(CUDA_DEVICE_TYPE, None)
            raise UnsupportedTorch("torch did not put its own device guard in place")
        return
    ensure()


class NoAddress(Exception):
    """An address was asked for, as code outside of torch needs it."""


class NoDeviceFakeMode(fake_tensor.FakeTensorMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Fake tensors that never touch a device, whatever `torch.cuda.is_available` was made to say."""

    @property
    def avoid_device_init(self) -> bool:
        """Always."""
        return True


@contextlib.contextmanager
def tracing_mode(*, cuda: bool, guarded: bool = False) -> Generator[None]:
    """Run torch code on fake tensors of a device: shapes, dtypes and errors are real, values and memory are not.

    Random initialisation of weights is skipped (values do not matter), and `torch.compile` is the identity, since
    what it would compile is not the candidate's own. `guarded`: C++ that asks a fake tensor for its address gets an
    error, as it would read at address 0 otherwise.
    """
    if cuda:
        allow_fake_cuda_tensors()
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    with contextlib.ExitStack() as stack:
        # It logs each failed operation at length; the error itself is raised too.
        stack.enter_context(replaced(logging.getLogger(fake_tensor.__name__), "disabled", value=True))
        if cuda:
            stack.enter_context(seemingly_available())
            stack.enter_context(replaced(fake_tensor, "init_gpu_context", _always(None)))
        else:  # its kernels are none that a trace knows: what it does with an address of nothing ends its process
            stack.enter_context(replaced(fake_tensor.FakeTensor, "data_ptr", _no_address))
        stack.enter_context(replaced(torch, "compile", _not_compiled))
        stack.enter_context(replaced(torch.nn.Module, "_apply", _apply_by_replacement))
        for name in dir(torch.nn.init):
            if name.endswith("_") and not name.startswith("_"):
                stack.enter_context(replaced(torch.nn.init, name, _leave_as_is))
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.no_grad())
        mode: Any = NoDeviceFakeMode(allow_non_fake_inputs=True)
        mode._allow_unsafe_data_ptr_access &= not guarded
        stack.enter_context(mode)
        stack.enter_context(device)
        yield


@contextlib.contextmanager
def fake_addresses() -> Generator[None]:
    """Give fake tensors distinct addresses, aligned as those of real ones would be: compilers specialise on that."""
    with replaced(fake_tensor.FakeTensor, "data_ptr", _address):
        yield


def _no_address(tensor: torch.Tensor) -> int:
    raise NoAddress(f"the address of a tensor of shape {tuple(tensor.shape)}, which has no memory in a trace")


def _address(tensor: torch.Tensor) -> int:
    storage: Any = tensor.untyped_storage()
    return int(storage._cdata) * ADDRESS_STEP + int(tensor.storage_offset()) * tensor.element_size()


def _not_compiled(model: Any = None, **_: object) -> Any:
    return _not_compiled if model is None else model


def _always(value: object) -> Callable[..., Any]:
    def answer(*_: object, **__: object) -> Any:
        return value

    return answer


def _entered(stream: Any) -> Any:
    return contextlib.nullcontext() if stream is None else stream


def _leave_as_is(tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return tensor


def _apply_by_replacement(module: Any, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:  # noqa: FBT001, FBT002 -- torch's signature
    """`Module._apply` that swaps nothing in place: torch cannot swap a fake tensor that others refer to."""
    if recurse:
        for child in module.children():
            child._apply(function)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            changed = function(parameter)
            module._parameters[name] = torch.nn.Parameter(changed, requires_grad=parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module

"""Tracing a candidate on fake tensors of a workload's real shapes. Runs in the candidate's own process.

A trace finds what a first call would find without a device, memory or lease: errors in Python, shapes and dtypes, and
it compiles each Triton kernel that the call would launch. It cannot follow a candidate that looks at values.
"""

import json
import linecache
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from pydantic import JsonValue
from torch._subclasses import fake_tensor

from kernelgate.tools.kit.build_log import compiler_errors, with_first_error
from kernelgate.tools.worker import protocol
from kernelgate.tools.worker.fake_cuda import NoAddress, UnsupportedTorch, tracing_mode
from kernelgate.tools.worker.operators import OperatorRecord
from kernelgate.tools.worker.structure import call_arguments
from kernelgate.tools.worker.triton_trace import LaunchTrace, kernel_line

ENTRY_CLASS: Final = "ModelNew"
NEEDS_VALUES: Final = (NoAddress, fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)
UNSUPPORTED: Final = (
    UnsupportedTorch,
    fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedOperatorException,
    fake_tensor.UnsupportedMutationAliasingException,
    fake_tensor.MetadataMismatchError,
)
NEEDS_VALUES_TEXTS: Final = (".numpy() is not supported", "Numpy is not available", "data-dependent")
UNSUPPORTED_TEXTS: Final = (
    "Torch not compiled with CUDA enabled", "No CUDA GPUs are available", "Found no NVIDIA driver",
    "no CUDA-capable device", "not linked with support for", "ATen_cuda", "requires CUDA support", "dummy base class",
    "FakeTensor", "fake tensor", "data pointer", "meta tensor", "Meta tensor", "NYI:", "libcuda",
    "PyTorch was compiled without CUDA",
)  # fmt: skip
"""How torch words that there is no device, or nothing behind a fake tensor, in errors without a type of their own."""
OPAQUE_ERRORS: Final = (RuntimeError, AssertionError, NotImplementedError, ValueError, OSError)
"""Types that torch uses for such texts. A TypeError about a `FakeTensor` is the candidate's own."""
MAX_FRAMES: Final = 12


class ReferenceFailed(Exception):
    """The reference itself could not be set up on fake tensors; nothing that the candidate did."""


def run_trace(module: ModuleType, message: Mapping[str, Any], kernels: list[Any]) -> dict[str, JsonValue]:
    """Build `ModelNew` and call `forward` on fake tensors of one workload.

    Args:
        module: The candidate's module, already imported.
        message: A `protocol.TraceWorkload` as JSON, with or without its sequence number.
        kernels: Gets the Triton kernels that were compiled.

    Returns:
        A `protocol.Traced` as JSON. What the candidate raised is in it, except MemoryError, which is raised here too.
    """
    fields = {name: value for name, value in message.items() if name != "sequence"}
    question = protocol.TraceWorkload.model_validate_json(json.dumps(fields))
    launches = LaunchTrace(question.target, configurations=question.configurations, compile_s=question.compile_s)
    outcome: dict[str, Any] = {"complete": False}
    record = OperatorRecord()
    try:
        with tracing_mode(cuda=question.on == "fake_cuda", guarded=not question.forward), launches.active():
            _forward(module, question, record)
        outcome = {"complete": True}
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the candidate raises is its outcome
        outcome |= _explained(error, module)
    kernels += launches.kernels
    traced = protocol.Traced(
        launches=launches.launches,
        configurations=launches.configurations,
        configurations_skipped=launches.configurations_skipped,
        operators=record.names(),
        precisions=record.precisions(),
        **outcome,
    )
    return traced.model_dump(mode="json")


def _forward(module: ModuleType, question: protocol.TraceWorkload, record: OperatorRecord) -> None:
    reference = ModuleType("reference")
    try:
        exec(compile(question.reference, "reference.py", "exec"), reference.__dict__)
        arguments, inputs = reference.get_init_inputs(), reference.get_inputs()
    except Exception as error:
        raise ReferenceFailed(f"the reference could not be set up: {type(error).__name__}: {error}") from error
    positional, named = call_arguments(arguments)
    model = getattr(module, ENTRY_CLASS)(*positional, **named)
    if not question.forward:
        return
    positional, named = call_arguments(inputs)
    with record:
        model(*positional, **named)


def _explained(error: BaseException, module: ModuleType) -> dict[str, Any]:
    """Fields of `Traced` for what was raised: a need for values, a limitation of fake tensors, or a failure."""
    errors = compiler_errors(str(error))
    if errors:  # whatever words a compiler chose
        return {"raised": _raised(error, _placed(with_first_error(str(error)), error, module), errors)}
    text = f"{type(error).__name__}: {error}"
    opaque = isinstance(error, OPAQUE_ERRORS) and not _raised_in(error, module)
    if isinstance(error, NEEDS_VALUES) or (opaque and any(words in text for words in NEEDS_VALUES_TEXTS)):
        return {"needs_values": True, "limitation": _placed(text, error, module)}
    nowhere = isinstance(error, AssertionError | RuntimeError) and not _own_frames(error, module)
    inside_torch = _raised_in_folder(error, os.path.dirname(str(fake_tensor.__file__)))
    if (
        isinstance(error, (*UNSUPPORTED, ReferenceFailed))
        or (opaque and any(words in text for words in UNSUPPORTED_TEXTS))
        or (nowhere and not isinstance(error, NotImplementedError))
        or (inside_torch and isinstance(error, AssertionError | AttributeError | NotImplementedError | KeyError))
    ):
        return {"limitation": _placed(text, error, module)}
    found = kernel_line(error, _kernels_of(module))
    message, log = str(error), _trimmed_traceback(error, module)
    if found is not None:
        file, line, message = found
        if line:
            shown = linecache.getline(file, line).strip()
            message = f"{os.path.basename(file)} line {line}: {message}"
            log = f"  File {os.path.basename(file)}, line {line}, in a kernel\n    {shown}\n{log}"
    else:
        message = _placed(message, error, module)
    return {"raised": _raised(error, message, log[-protocol.MAX_LOG_CHARS :])}


def _raised(error: BaseException, message: str, log: str) -> protocol.Raised:
    """Both texts from their beginning, as far as they may go over."""
    return protocol.Raised(
        type=type(error).__name__[:200],
        message=message[: protocol.MAX_ERROR_CHARS],
        log=log[: protocol.MAX_LOG_CHARS],
    )


def _placed(text: str, error: BaseException, module: ModuleType) -> str:
    """A message with the candidate's own line that led to it, bounded."""
    own = _own_frames(error, module)
    place = f" ({os.path.basename(own[-1].filename)} line {own[-1].lineno})" if own else ""
    return text[: protocol.MAX_ERROR_CHARS - len(place)] + place


def _own_frames(error: BaseException, module: ModuleType) -> list[traceback.FrameSummary]:
    folder = os.path.dirname(str(module.__file__))
    return [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.dirname(frame.filename) == folder]


def _raised_in(error: BaseException, module: ModuleType) -> bool:
    """Whether the candidate's own code has the `raise` (or `assert`)."""
    return _raised_in_folder(error, os.path.dirname(str(module.__file__))) and _last_line_raises(error)


def _last_line_raises(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and (frames[-1].line or "").lstrip().startswith(("raise", "assert"))


def _raised_in_folder(error: BaseException, folder: str) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and os.path.dirname(frames[-1].filename) == folder


def _trimmed_traceback(error: BaseException, module: ModuleType) -> str:
    """The candidate's own frames, and the message."""
    lines = [
        f"  File {os.path.basename(frame.filename)}, line {frame.lineno}, in {frame.name}\n    {frame.line}\n"
        for frame in _own_frames(error, module)[-MAX_FRAMES:]
    ]
    end = "".join(traceback.format_exception_only(type(error), error))
    return "".join(lines) + end[: protocol.MAX_LOG_CHARS // 2]


def _kernels_of(module: ModuleType) -> Sequence[Any]:
    """The `JITFunction`s of the candidate's modules, those inside autotuners too."""
    folder = os.path.dirname(str(module.__file__))
    modules = [module] + [
        other for other in list(sys.modules.values()) if os.path.dirname(str(getattr(other, "__file__", ""))) == folder
    ]
    found: list[Any] = []
    for other in modules:
        for value in list(vars(other).values()):
            inner: Any = value
            for _ in range(10):
                if not hasattr(inner, "fn"):
                    break
                if hasattr(inner, "raw_src"):
                    found.append(inner)
                inner = inner.fn
    return found

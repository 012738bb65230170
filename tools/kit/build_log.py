"""What a build that failed is told by: its compiler's first error, the end of its traceback, a wish for a GPU. Pure."""

import re
from typing import Final

from kernelgate.tools.kit.facts import Fault

MAX_LOG_CHARS: Final = 2_000
EXTENSION_FAILED: Final = "Error building extension"
"""How torch begins what it raises; the command lines and all that the compilers said follow in the same message."""
NO_DEVICE_TEXTS: Final = (
    "Torch not compiled with CUDA enabled", "PyTorch was compiled without CUDA", "No CUDA GPUs are available",
    "Found no NVIDIA driver", "CUDA error", "CUDA driver", "num_gpus", "did you call init", "libcuda.so",
    "with arguments from the 'CUDA' backend", "not linked with support for cuda",
)  # fmt: skip
"""How torch and CUDA word that a process sees no GPU: there, each error of CUDA's says that it was asked for one."""

_NAME: Final = re.compile(rf"{EXTENSION_FAILED} '([^'\n]{{1,100}})'")
_ERROR: Final = re.compile(
    r"\berror\b[^:\n]{0,20}:|^(?:nvcc|ptxas) fatal\b|undefined reference to|multiple definition of|cannot find -l"
)
"""Of gcc, clang, nvcc (`error #20:`), ptxas and linkers, which name what is missing before they say `error:`."""
_FOLDERS: Final = re.compile(r"(?<![\w./])/[^\s:'\"`(]*/(?=[^\s/:'\"`(]+)")
_FRAME: Final = re.compile(r'^  File "([^"]*)", line')
_CANDIDATE_PATH: Final = re.compile(r'File "[^"]*/candidate/([^"/]+)"')


def compiler_errors(message: str) -> str:
    """What compilers said from their first error on, files by their bare names; empty if no extension failed to build.

    Of an extension without a line that looks like an error it is all that was said.
    """
    _, found, output = message.partition(EXTENSION_FAILED)
    if not found:
        return ""
    lines = output.splitlines()
    first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), 0)
    return "\n".join(_FOLDERS.sub("", line) for line in lines[first:])


def with_first_error(message: str) -> str:
    """A message of torch about an extension, cut down to the compiler's first error; any other one as it is."""
    errors = compiler_errors(message)
    if not _ERROR.search(errors):
        return message
    name = _NAME.search(message)
    return f"{EXTENSION_FAILED}{f' {name[1]!r}' if name else ''}: {errors.splitlines()[0].strip()}"


def wants_device(fault: Fault) -> bool:
    """Whether a candidate was imported where it saw no GPU, and asked for one."""
    if fault.kind != "raised" or fault.stage != "load" or EXTENSION_FAILED in fault.error:
        return False
    return any(text in fault.error for text in NO_DEVICE_TEXTS)


def trimmed_log(log: str) -> str:
    """The end of a traceback: frames of the candidate's own files only, without the folders that they lay in."""
    kept: list[str] = []
    keeping = True
    for line in log.splitlines():
        frame = _FRAME.match(line)
        if frame:
            keeping = _CANDIDATE_PATH.search(line) is not None or "/" not in frame[1].strip("<>")
            keeping = keeping and not frame[1].startswith("<frozen")
        elif not line.startswith("    "):
            keeping = True
        if keeping:
            kept.append(_CANDIDATE_PATH.sub(r'File "\1"', line))
    return "\n".join(kept)[-MAX_LOG_CHARS:]

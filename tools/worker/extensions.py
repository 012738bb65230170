"""Extensions in C++ and CUDA that a candidate had torch build: which there are, and the kernels in their binaries.

The candidate's process wrote them, so all in them is hostile by assumption; see `binaries`.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kernelgate.tools.kit.facts import Kernel
from kernelgate.tools.worker import binaries
from kernelgate.tools.worker.binaries import Reading, entries, output_of, read_bounded

MAX_EXTENSIONS: Final = 32
MAX_READ: Final = 4
"""Extensions whose kernels are read; almost all candidates have one."""
MAX_FILES: Final = 200
MAX_KERNELS: Final = 64
MAX_EXTENSION_BYTES: Final = 64 << 20
"""Host code lies in it too."""
SUFFIX: Final = ".so"
ANY_WARPS: Final = 0
"""Threads of a block are decided at the launch."""
MAX_BYTES: Final = 1 << 30

_ARCH: Final = re.compile(r"^arch = (sm_\d{2,3}[af]?)$", re.MULTILINE)
_USAGE: Final = re.compile(r"Function (\S{1,2000}):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_CODE: Final = re.compile(rb"\bFunction : (\S{1,2000})")


class _Piece(NamedTuple):
    """What a tool prints of the code for one architecture."""

    target: str
    text: bytes


def built_in(cache: Path) -> tuple[str, ...]:
    """Names of the extensions with a shared object in a folder as `TORCH_EXTENSIONS_DIR` names it, sorted."""
    return tuple(file.name.removesuffix(SUFFIX) for file in shared_objects(cache))


def shared_objects(cache: Path) -> list[Path]:
    """Plain files only, one folder deep, where torch puts them: `NAME/NAME.so`."""
    return [
        file
        for folder in entries(cache, MAX_EXTENSIONS, folders=True)
        for file in entries(folder, MAX_FILES, folders=False)
        if file.suffix == SUFFIX
    ]


def read_extension_kernels(cache: Path, environment: Mapping[str, str] | None = None) -> Reading:
    """The kernels of the extensions in a folder, in order of name; nothing is loaded onto a device.

    Args:
        cache: As `TORCH_EXTENSIONS_DIR` names it; absent means that nothing was built.
        environment: Where to look for cuobjdump if Triton's package has none: its PATH (default: this process's).

    Their warps read `ANY_WARPS`. Without cuobjdump there are none, and a note says so. Of an extension without device
    code there are none.
    """
    path = dict(os.environ if environment is None else environment).get("PATH", os.defpath)
    tool = binaries.find_tool("cuobjdump", path)
    files = shared_objects(cache)
    if files and tool is None:
        return Reading((), (binaries.NO_CUOBJDUMP,))
    notes: list[str] = []
    kernels: list[Kernel] = []
    deadline = time.monotonic() + binaries.READ_TIMEOUT_S
    for file in files[:MAX_READ]:
        if time.monotonic() > deadline:
            break
        content = read_bounded(file, MAX_EXTENSION_BYTES)
        usage = output_of(tool, ["-res-usage"], content)
        kernels += _kernels(usage, output_of(tool, ["-sass"], content)) if usage else ()
    else:
        deadline = 0.0
    if deadline or len(files) > MAX_READ or len(kernels) > MAX_KERNELS:
        notes.append(f"not all kernels of {len(files)} extensions were read")
    kernels.sort(key=lambda kernel: (kernel.name, kernel.target))
    return Reading(tuple(kernels[:MAX_KERNELS]), tuple(notes))


def _kernels(usage: bytes, code: bytes) -> Iterator[Kernel]:
    """From what cuobjdump prints with `-res-usage` and with `-sass`."""
    bodies = {(piece.target, name): body for piece in _pieces(code) for name, body in _bodies(piece.text)}
    for piece in _pieces(usage):
        reserved = int(piece.target.strip("sm_af")) >= binaries.FIRST_ARCH_COUNTING_RESERVED
        for row in _USAGE.finditer(piece.text.decode(errors="replace")):
            registers, stack, shared, local = (min(int(row[i][:12]), MAX_BYTES) for i in (2, 3, 4, 5))
            body = bodies.get((piece.target, row[1]))
            if body is None:
                continue
            yield Kernel(
                name=row[1][:200],
                target=piece.target.rstrip("af"),
                registers=registers,
                spill_bytes=stack + local,
                shared_bytes=max(0, shared - binaries.SHARED_RESERVED_BYTES) if reserved else shared,
                warps=ANY_WARPS,
                tensor_cores=binaries.TENSOR_CORE.search(body) is not None,
                vector_loads=binaries.VECTOR_LOAD.search(body) is not None,
                atomics=binaries.ATOMIC.search(body) is not None,
                doubles=binaries.DOUBLE.search(body) is not None,
            )


def _pieces(printed: bytes) -> Iterator[_Piece]:
    text = printed.decode(errors="replace")
    found = list(_ARCH.finditer(text))
    for number, match in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else len(text)
        yield _Piece(match[1], text[match.end() : end].encode())


def _bodies(text: bytes) -> Iterator[tuple[str, bytes]]:
    found = list(_CODE.finditer(text))
    for number, match in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else len(text)
        yield match[1].decode(errors="replace"), text[match.end() : end]

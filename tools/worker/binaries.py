"""Reading compiled kernels: registers, spills, shared memory and instruction mix, from the binaries in a Triton cache.

The cache was written by the candidate's process, so all in it is hostile by assumption: bounded walks and reads, no
symbolic link followed, the tools of the CUDA toolkit in processes of their own with limits on time, memory and output.
"""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernelgate.tools.kit.facts import Kernel

MAX_FOLDERS: Final = 2_000
MAX_FILES_PER_FOLDER: Final = 200
MAX_BINARIES: Final = 64
"""Kernels read; one kernel with many autotuned configurations is the usual reason for more."""
MAX_BINARY_BYTES: Final = 16 << 20
MAX_TEXT_BYTES: Final = 4 << 20
MAX_DISASSEMBLED: Final = 6
"""The disassembler takes 0.3 s a binary, whatever its size; further ones are judged by their PTX."""
TOOL_TIMEOUT_S: Final = 10.0
TOOL_OUTPUT_BYTES: Final = 32 << 20
"""nvdisasm writes about 100 bytes per instruction; large kernels have some 50,000 instructions."""
TOOL_MEMORY_BYTES: Final = 4 << 30
NO_CUOBJDUMP: Final = (
    "registers and spills are unknown: cuobjdump is neither in Triton's package nor on PATH; install the CUDA toolkit"
)
AT_ONCE: Final = 4
"""Binaries read side by side, each by two tools."""
READ_TIMEOUT_S: Final = 20.0
"""For all binaries together; what is not read by then is left out, and that is said."""
SHARED_RESERVED_BYTES: Final = 1024
"""From sm_90 on the resource table counts the kilobyte that the system keeps of each block's shared memory."""
FIRST_ARCH_COUNTING_RESERVED: Final = 90

_LIMITED: Final = (
    f"ulimit -c 0 && ulimit -t {int(TOOL_TIMEOUT_S)} && ulimit -v {TOOL_MEMORY_BYTES >> 10}"
    f' && ulimit -f {TOOL_OUTPUT_BYTES >> 9} && exec "$0" "$@"'
)
"""Processor seconds, KiB of addresses, blocks of 512 bytes of output."""

_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
TENSOR_CORE = re.compile(rb"\b(?:UTC)?[HIQDBO]?G?MMA\.|\bUTC[A-Z]*MMA\b")
VECTOR_LOAD = re.compile(rb"\bLD(?:G|GSTS)\.[A-Z0-9.]*(?:64|128|256)\b|\b(?:UBLKCP|UTMALDG|UTMACCTL)\b")
ATOMIC = re.compile(rb"\b(?:ATOMG?|REDG?)\.[A-Z]|\bUREDG?\b")
DOUBLE = re.compile(rb"\bD(?:ADD|FMA|MUL|MMA|SETP)\b")
_PTX_TENSOR_CORE = re.compile(rb"\b(?:wgmma\.mma_async|mma\.sync|wmma\.mma|tcgen05\.mma)\b")
_PTX_VECTOR_LOAD = re.compile(
    rb"\bld\.global[a-zA-Z0-9_.:]*\.(?:v[248]\.[a-z]32|v[48]\.[a-z]16|[a-z]64)\b|\bcp\.async\.bulk\b"
    rb"|\bcp\.async\.c[ag]\.shared\.global[a-zA-Z0-9_.:]*\s+\[[^\]]*\],\s*\[[^\]]*\],\s*(?:0x8|0x10|8|16)\b"
)
_PTX_ATOMIC = re.compile(rb"\b(?:atom|red)\.(?:[a-z]+\.)*global\b")
_PTX_DOUBLE = re.compile(rb"\b(?:add|sub|mul|fma|div|sqrt)\.(?:[a-z]+\.)*f64\b")
_NAME = re.compile(r"^[A-Za-z_$][A-Za-z0-9_$.]{0,199}$")


class Compiled(NamedTuple):
    """What Triton left of one kernel; empty where a file is missing or too large."""

    binary: bytes
    metadata: bytes
    ptx: bytes


class Tools(NamedTuple):
    """The tools of the CUDA toolkit that were found."""

    cuobjdump: Path | None
    nvdisasm: Path | None


class Reading(NamedTuple):
    """What was read, and what could not be."""

    kernels: tuple[Kernel, ...]
    notes: tuple[str, ...]


class _Target(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    arch: int = Field(ge=10, le=999)


class _Metadata(BaseModel):
    """What Triton writes beside a binary."""

    model_config = ConfigDict(strict=True, extra="ignore")
    name: str
    num_warps: int = Field(ge=1, le=64)
    shared: int = Field(ge=0, le=1 << 30)
    target: _Target


class _Usage(NamedTuple):
    registers: int
    local_bytes: int
    shared_bytes: int


def read_kernels(cache: Path, environment: Mapping[str, str] | None = None) -> Reading:
    """The kernels in a Triton cache folder, in order of name; nothing is loaded onto a device.

    Args:
        cache: The folder; absent means that nothing was compiled.
        environment: Where to look for the tools if Triton's package has none: its PATH (default: this process's).

    Without `cuobjdump` registers and spills read 0 and a note says so; without `nvdisasm` the instruction mix is
    read from the PTX.
    """
    path = dict(os.environ if environment is None else environment).get("PATH", os.defpath)
    tools = Tools(find_tool("cuobjdump", path), find_tool("nvdisasm", path))
    notes: list[str] = []
    if tools.cuobjdump is None:
        notes.append(NO_CUOBJDUMP)
    files = list(islice(_binaries(cache), MAX_BINARIES + 1))
    deadline = time.monotonic() + READ_TIMEOUT_S

    def read(count: int) -> Kernel | Literal["late"] | None:
        if time.monotonic() > deadline:
            return "late"
        return _read_kernel(files[count], tools if count < MAX_DISASSEMBLED else tools._replace(nvdisasm=None))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(read, range(min(len(files), MAX_BINARIES))))
    if len(files) > MAX_BINARIES or "late" in found:
        notes.append(f"only the first {len(found) - found.count('late')} binaries were read")
    if None in found:
        notes.append("a binary in the cache could not be read")
    kernels = [kernel for kernel in found if isinstance(kernel, Kernel)]
    kernels.sort(key=lambda kernel: (kernel.name, kernel.warps, kernel.shared_bytes, kernel.registers))
    return Reading(tuple(kernels), tuple(dict.fromkeys(notes)))


def find_tool(name: str, path: str) -> Path | None:
    """A tool of the CUDA toolkit: the one in Triton's package, else the one on the PATH given."""
    package = importlib.util.find_spec("triton")
    for location in package.submodule_search_locations or () if package else ():
        shipped = Path(location, "backends", "nvidia", "bin", name)
        if os.access(shipped, os.X_OK):
            return shipped
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def _binaries(cache: Path) -> Iterator[Path]:
    """Each binary of the cache, in order of path."""
    for folder in entries(cache, MAX_FOLDERS, folders=True):
        for file in entries(folder, MAX_FILES_PER_FOLDER, folders=False):
            if file.suffix == ".cubin":
                yield file


def _compiled(file: Path) -> Compiled:
    """A binary with the files beside it."""
    return Compiled(
        binary=read_bounded(file, MAX_BINARY_BYTES),
        metadata=read_bounded(file.with_suffix(".json"), MAX_TEXT_BYTES),
        ptx=read_bounded(file.with_suffix(".ptx"), MAX_TEXT_BYTES),
    )


def entries(folder: Path, limit: int, *, folders: bool) -> list[Path]:
    """Plain folders, or plain files, of a folder; links are neither."""
    found: list[Path] = []
    try:
        with os.scandir(folder) as listed:
            for _, entry in zip(range(limit), listed, strict=False):
                if entry.is_dir(follow_symlinks=False) if folders else entry.is_file(follow_symlinks=False):
                    found.append(Path(entry.path))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    return sorted(found)


def read_bounded(file: Path, limit: int) -> bytes:
    """The bytes of a plain file of at most `limit`; nothing of anything else."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        content = stream.read(limit + 1)
    return content if len(content) <= limit else b""


def _read_kernel(file: Path, tools: Tools) -> Kernel | None:
    compiled = _compiled(file)
    try:
        facts = _Metadata.model_validate_json(compiled.metadata)
    except ValidationError:
        return None
    if not _NAME.match(facts.name):
        return None
    with ThreadPoolExecutor(1) as beside:
        # Without its data flow analysis, a quarter of its time: which instructions there are does not depend on it.
        code = beside.submit(output_of, tools.nvdisasm, ["-c", "-ndf"], compiled.binary)
        table = output_of(tools.cuobjdump, ["-res-usage"], compiled.binary)
        usage = _Usage(0, 0, 0) if tools.cuobjdump is None else _usage(table, facts)
        disassembly = code.result()
    if usage is None:
        return None
    return Kernel(
        name=facts.name,
        target=f"sm_{facts.target.arch}",
        registers=usage.registers,
        spill_bytes=usage.local_bytes,
        shared_bytes=max(facts.shared, usage.shared_bytes),
        warps=facts.num_warps,
        tensor_cores=_has(disassembly, TENSOR_CORE, compiled.ptx, _PTX_TENSOR_CORE),
        vector_loads=_has(disassembly, VECTOR_LOAD, compiled.ptx, _PTX_VECTOR_LOAD),
        atomics=_has(disassembly, ATOMIC, compiled.ptx, _PTX_ATOMIC),
        doubles=_has(disassembly, DOUBLE, compiled.ptx, _PTX_DOUBLE),
    )


def _has(code: bytes, in_code: re.Pattern[bytes], ptx: bytes, in_ptx: re.Pattern[bytes]) -> bool:
    """Whether the disassembly has an instruction; where there is none, whether the PTX has one that becomes it."""
    return (in_code.search(code) if code else in_ptx.search(ptx)) is not None


def _usage(table: bytes, facts: _Metadata) -> _Usage | None:
    """The row of the kernel in what `cuobjdump -res-usage` prints; stack and local memory are both per thread."""
    for row in _USAGE.finditer(table.decode(errors="replace")):
        if row[1] == facts.name:
            registers, stack, shared, local = (min(int(row[i]), 1 << 30) for i in (2, 3, 4, 5))
            if facts.target.arch >= FIRST_ARCH_COUNTING_RESERVED:
                shared = max(0, shared - SHARED_RESERVED_BYTES)
            return _Usage(registers, stack + local, shared)
    return None


def output_of(tool: Path | None, options: list[str], binary: bytes) -> bytes:
    """What a tool prints about a binary, bounded; empty if it fails or there is none. The binary goes over in memory.

    The shell sets the limits: code between fork and exec must not run in a process that has threads.
    """
    if tool is None:
        return b""
    with _memory_file("binary", binary) as source, _memory_file("output", b"") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITED, str(tool), *options, f"/proc/self/fd/{source.fileno()}"],
            stdin=subprocess.DEVNULL,
            stdout=output.fileno(),
            stderr=subprocess.DEVNULL,
            pass_fds=[source.fileno()],
            env={"PATH": os.defpath},
            start_new_session=True,
        )
        try:
            status = process.wait(TOOL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return b""
        if status != 0:
            return b""
        return os.pread(output.fileno(), TOOL_OUTPUT_BYTES, 0)


def _memory_file(name: str, content: bytes) -> IO[bytes]:
    file = os.fdopen(os.memfd_create(name), "w+b")
    file.write(content)
    file.flush()
    return file

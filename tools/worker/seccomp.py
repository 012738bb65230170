"""A filter of system calls: what reaches other processes of the same user, or much of the kernel, is refused for good.

Landlock scopes signals and files; limits, priorities and processors of other processes it leaves open.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2

_LOAD: Final = 0x20
"""BPF_LD | BPF_W | BPF_ABS."""
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_JUMP_BITS: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_NUMBER_OFFSET: Final = 0
_ARCHITECTURE_OFFSET: Final = 4
_ARGUMENTS_OFFSET: Final = 16
"""Of `struct seccomp_data`; eight bytes each, the low half first on both architectures."""
_X32_BIT: Final = 0x40000000
_NEW_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""

_REFUSED: Final = (
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_open",
    "pidfd_getfd", "kcmp", "perf_event_open", "bpf", "userfaultfd", "keyctl", "add_key", "request_key", "mount",
    "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    "unshare", "setns",
)  # fmt: skip
_OF_ITSELF: Final[Mapping[str, Sequence[tuple[int, int]]]] = {
    "prlimit64": ((0, 0),),
    "sched_setaffinity": ((0, 0),),
    "sched_setscheduler": ((0, 0),),
    "sched_setparam": ((0, 0),),
    "sched_setattr": ((0, 0),),
    "migrate_pages": ((0, 0),),
    "move_pages": ((0, 0),),
    "setpriority": ((0, 0), (1, 0)),  # PRIO_PROCESS; for PRIO_USER even 0 means all of the user's processes
    "ioprio_set": ((0, 1), (1, 0)),  # IOPRIO_WHO_PROCESS
}
"""Allowed where these arguments have these values: the caller itself."""


@dataclass(frozen=True)
class _Architecture:
    audit: int
    """AUDIT_ARCH_* of linux/audit.h."""
    numbers: Mapping[str, int]
    x32: bool = False


_X86_64: Final = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440,
    "process_mrelease": 448, "pidfd_open": 434, "pidfd_getfd": 438, "kcmp": 312, "perf_event_open": 298, "bpf": 321,
    "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249, "mount": 165, "umount2": 166,
    "pivot_root": 155, "move_mount": 429, "open_tree": 428, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "mount_setattr": 442, "unshare": 272, "setns": 308, "prlimit64": 302, "sched_setaffinity": 203,
    "sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314, "migrate_pages": 256, "move_pages": 279,
    "setpriority": 141, "ioprio_set": 251, "clone": 56, "clone3": 435,
}  # fmt: skip
"""From the kernel's `asm/unistd_64.h`."""
_AARCH64: Final = {
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "process_madvise": 440,
    "process_mrelease": 448, "pidfd_open": 434, "pidfd_getfd": 438, "kcmp": 272, "perf_event_open": 241, "bpf": 280,
    "userfaultfd": 282, "keyctl": 219, "add_key": 217, "request_key": 218, "mount": 40, "umount2": 39,
    "pivot_root": 41, "move_mount": 429, "open_tree": 428, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "mount_setattr": 442, "unshare": 97, "setns": 268, "prlimit64": 261, "sched_setaffinity": 122,
    "sched_setscheduler": 119, "sched_setparam": 118, "sched_setattr": 274, "migrate_pages": 238, "move_pages": 239,
    "setpriority": 140, "ioprio_set": 30, "clone": 220, "clone3": 435,
}  # fmt: skip
"""From the kernel's `asm-generic/unistd.h`."""
_ARCHITECTURES: Final = {
    "x86_64": _Architecture(0xC000003E, _X86_64, x32=True),
    "aarch64": _Architecture(0xC00000B7, _AARCH64),
}


def why_not() -> str:
    """Why no filter can be set here; empty if one can."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        return f"no table of system calls for {machine}"
    # Without a program the kernel answers EFAULT where it has filters, EINVAL where it has none.
    _LIBC.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0)
    return "" if ctypes.get_errno() == errno.EFAULT else "this kernel has no seccomp filters"


def restrict_self() -> None:
    """Set the filter. Needs no_new_privs; holds for this process and all that it starts. Raises OSError."""
    code = program(platform.machine())
    buffer = ctypes.create_string_buffer(code, len(code))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    if _LIBC.prctl(_PR_SET_SECCOMP, _MODE_FILTER, head, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the system call filter was refused by the kernel: {os.strerror(number)}")


def program(machine: str) -> bytes:
    """The filter as BPF for an architecture; raises KeyError for an unknown one."""
    architecture = _ARCHITECTURES[machine]
    numbers = architecture.numbers
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    code = _step(_LOAD, _ARCHITECTURE_OFFSET) + _step(_JUMP_EQUAL, architecture.audit, 1, 0) + refuse
    code += _step(_LOAD, _NUMBER_OFFSET)
    if architecture.x32:
        code += _step(_JUMP_AT_LEAST, _X32_BIT, 0, 1) + refuse
    for name in _REFUSED:
        code += _rule(numbers[name], refuse)
    for name, arguments in _OF_ITSELF.items():
        body = b"".join(_argument(index) + _step(_JUMP_EQUAL, value, 1, 0) + refuse for index, value in arguments)
        code += _rule(numbers[name], body + _step(_RETURN, _ALLOW))
    namespaces = _argument(0) + _step(_JUMP_BITS, _NEW_NAMESPACES, 0, 1) + refuse + _step(_RETURN, _ALLOW)
    code += _rule(numbers["clone"], namespaces)
    # Its flags lie in memory, which a filter cannot read; on ENOSYS the C library falls back to clone.
    code += _rule(numbers["clone3"], _step(_RETURN, _ERRNO | errno.ENOSYS))
    return code + _step(_RETURN, _ALLOW)


def _rule(number: int, body: bytes) -> bytes:
    """The body, which returns, for one system call; its number is loaded."""
    return _step(_JUMP_EQUAL, number, 0, len(body) // 8) + body


def _argument(index: int) -> bytes:
    """Load the low half: process ids, whos and flags are 32 bits wide, and the kernel looks at no more."""
    return _step(_LOAD, _ARGUMENTS_OFFSET + 8 * index)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)

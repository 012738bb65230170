"""Landlock: what a process gives up for good, without root. Paths, TCP, signals and abstract sockets by kernel ABI."""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
"""System call numbers, the same on all architectures (asm-generic)."""
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_QUERY_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
_REFER: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_IOCTL_DEV: Final = 1 << 15
_ALL_OF_ABI_1: Final = (1 << 13) - 1

READ: Final = EXECUTE | READ_FILE | READ_DIR
LIST: Final = READ_DIR
USE_DEVICE: Final = READ_FILE | WRITE_FILE | READ_DIR | _IOCTL_DEV
WRITE: Final = _ALL_OF_ABI_1 & ~(1 << 6 | 1 << 11) | _REFER | _TRUNCATE
"""All but making device nodes (MAKE_CHAR, MAKE_BLOCK)."""
REWRITE: Final = READ_FILE | READ_DIR | WRITE_FILE | _TRUNCATE
"""Change what is there, make nothing new: `/proc/self`."""
_ON_A_FILE: Final = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV

ABI_NET: Final = 4
ABI_SCOPES: Final = 6


@dataclass(frozen=True)
class Grant:
    """Rights on a path and all beneath it. A path that does not exist grants nothing."""

    path: str
    rights: int


def landlock_abi() -> int:
    """The kernel's landlock version, 0 where it has none."""
    version: int = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_QUERY_VERSION))
    return max(0, version)


def refuse_new_privileges() -> None:
    """Set no_new_privs: no later exec gains anything from set-user-ID bits or file capabilities."""
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs could not be set")


def restrict_self(grants: Iterable[Grant], abi: int) -> None:
    """Keep only the granted paths; no TCP (ABI 4), no signals or abstract sockets out of the domain (ABI 6).

    Needs no_new_privs or CAP_SYS_ADMIN. Holds for this process and all that it starts. Raises OSError.
    """
    files = _ALL_OF_ABI_1
    files |= _REFER if abi >= 2 else 0
    files |= _TRUNCATE if abi >= 3 else 0
    files |= _IOCTL_DEV if abi >= 5 else 0
    attributes = struct.pack("=Q", files)
    if abi >= ABI_NET:
        attributes += struct.pack("=Q", 0b11)
    if abi >= ABI_SCOPES:
        attributes += struct.pack("=Q", 0b11)
    ruleset = _checked(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0), "a ruleset")
    try:
        for grant in grants:
            _add(ruleset, grant, files)
        _checked(_LIBC.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)), "landlock")
    finally:
        os.close(ruleset)


def _add(ruleset: int, grant: Grant, handled: int) -> None:
    try:
        descriptor = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what cannot even be named here cannot be opened later either
    try:
        rights = grant.rights & handled
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _ON_A_FILE
        if rights:
            rule = struct.pack("=Qi", rights, descriptor)
            result = _LIBC.syscall(_ADD_RULE, ruleset, ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0))
            _checked(result, f"the rule for {grant.path}")
    finally:
        os.close(descriptor)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} was refused by the kernel: {os.strerror(number)}")
    return result

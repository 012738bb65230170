"""Exclusive use of one device among all processes of this host: a lock file per device in a world-writable folder."""

import fcntl
import os
import re
import stat
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, ValidationError

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen

LEASE_FOLDER: Final = Path("/tmp/kernelgate-leases")
"""The same for every user and server of the host: servers that looked in different places would measure together."""
_NOTE_LIMIT_BYTES: Final = 1 << 16


class Process(Frozen):
    """A process, told apart from a later one with the same number by when it started."""

    pid: int
    start_ticks: int
    """Field 22 of `/proc/PID/stat`."""

    @property
    def alive(self) -> bool:
        """Whether this very process still exists."""
        return start_ticks(self.pid) == self.start_ticks


class LeaseNote(Frozen):
    """What stands in a lock file. For people and for the foreign-process check; the lock alone decides."""

    holder: Process | None = None
    residents: Annotated[tuple[Process, ...], BeforeValidator(as_tuple)] = ()
    """Referees that keep memory on the device between calls."""
    room_asked: int = 0
    """How often a server has asked the others of this device for its memory."""


class Lease:
    """The lease of one device. Never blocks: `try_take` says at once whether it was free.

    Take it after the candidate's fork: a descriptor that a child inherited would keep the lock alive.
    """

    def __init__(self, device_uid: str, folder: Path = LEASE_FOLDER) -> None:
        self._folder = folder
        self.path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', device_uid)}.lease"
        self._descriptor = -1
        self._listed: list[Process] = []

    @property
    def held(self) -> bool:
        """Whether this object holds the lease."""
        return self._descriptor >= 0

    def try_take(self) -> bool:
        """Take the lease if it is free; raises OSError with one sentence where the lock file cannot be used."""
        if self.held:
            raise RuntimeError("the lease is already held by this object")
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        self._note(holder=this_process(os.getpid()))
        return True

    def list_resident(self, pid: int) -> None:
        """Note a referee that keeps memory on the device; only while the lease is held."""
        resident = this_process(pid)
        self._listed = [*(known for known in self._listed if known.alive), resident]
        others = [known for known in self._held_note().residents if known != resident]
        self._note(residents=(*others, resident))

    def others(self) -> tuple[Process, ...]:
        """Who keeps memory on the device and was not listed by this object; only while the lease is held."""
        return tuple(known for known in self._held_note().residents if known not in self._listed)

    def ask_for_room(self) -> int:
        """Note that the others' memory is needed, and return how often that was noted; only while the lease is held."""
        asked = self._held_note().room_asked + 1
        self._note(room_asked=asked)
        return asked

    def release(self) -> None:
        """Give the lease back, explicitly: a stray copy of the descriptor must not keep it. Again does nothing."""
        if not self.held:
            return
        try:
            self._note(holder=None)
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self) -> LeaseNote:
        """Who holds the device, as far as the file tells; an unreadable note is an empty one."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return LeaseNote()
        try:
            return _parse(os.pread(descriptor, _NOTE_LIMIT_BYTES, 0))
        finally:
            os.close(descriptor)

    def _held_note(self) -> LeaseNote:
        """The note, of its residents those that are alive; only while the lease is held."""
        note = _parse(os.pread(self._descriptor, _NOTE_LIMIT_BYTES, 0))
        return note.model_copy(update={"residents": tuple(process for process in note.residents if process.alive)})

    def _note(self, **changed: object) -> None:
        data = self._held_note().model_copy(update=changed).model_dump_json().encode()
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def _open(self) -> int:
        self._make_folder()
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # Without O_CREAT first: in a sticky folder the kernel refuses O_CREAT on somebody else's file.
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            descriptor = self._create(flags)
        except OSError as error:
            raise OSError(error.errno, f"the lease file {self.path} cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(f"{self.path} is not a plain file; remove it, the lease of the device is kept there")
        return descriptor

    def _create(self, flags: int) -> int:
        try:
            descriptor = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return os.open(self.path, flags)
        os.fchmod(descriptor, 0o666)  # the umask must not keep other users' servers out
        return descriptor

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o777)
            self._folder.chmod(0o1777)
        except FileExistsError:
            if not stat.S_ISDIR(self._folder.lstat().st_mode):
                raise OSError(f"{self._folder} is not a folder; remove it, device leases are kept there") from None


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; -1 if there is none, or it is dead and only not reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return -1
    fields = text.rpartition(")")[2].split()
    return -1 if fields[0] in "ZX" else int(fields[19])


def this_process(pid: int) -> Process:
    """The process that has this number now."""
    return Process(pid=pid, start_ticks=start_ticks(pid))


def _parse(data: bytes) -> LeaseNote:
    try:
        return LeaseNote.model_validate_json(data)
    except ValidationError:
        return LeaseNote()

"""What passes through the supervisor unread: requests, files of candidates and answers, in sealed memory.

Candidates are forked from the supervisor and can read all that its memory holds, freed memory included. So the task
with its held-out workloads, the plan and the candidate's own files travel in one sealed memory file from the server to
whoever conducts the call, and what came of it travels in another one back. The supervisor forwards descriptors.
"""

import fcntl
import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

from pydantic import Field, JsonValue

from kernelgate.tasks.model import Frozen
from kernelgate.tasks.source_scan import scan_files
from kernelgate.tools.kit.wire import ANSWER_LIMIT_BYTES, DeviceRef, WorkerRequest
from kernelgate.tools.worker import frames

_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_HEAD: Final = struct.Struct(">QQ")
"""Bytes of the table of files, and of all files together; both follow, and then a JSON object up to the end."""


class Envelope(Frozen):
    """Of a `WorkerRequest`, what the supervisor itself needs; a `Sealed` comes with it."""

    op: Literal["call"] = "call"
    request_id: int
    procedure: str
    task_name: str
    language: str
    """Of the candidate's files; empty where there is no candidate."""
    digest: str
    device: DeviceRef
    lease: bool
    cap_s: float = Field(gt=0)
    state_dir: str
    hidden: bool = False

    @classmethod
    def of(cls, request: WorkerRequest) -> "Envelope":
        """The envelope of a request."""
        return cls(
            request_id=request.request_id,
            procedure=request.procedure,
            task_name=request.task.name,
            language=scan_files(request.files).language if request.files else "",
            digest=request.digest,
            device=request.device,
            lease=request.lease,
            cap_s=request.cap_s,
            state_dir=request.state_dir,
            hidden=request.hidden,
        )


class Sealed:
    """A JSON object, and files beside it, in memory that nobody can change any more; owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Takes over the descriptor."""
        self._descriptor = descriptor

    @classmethod
    def seal(cls, request: WorkerRequest) -> "Sealed":
        """Write a request down and seal it. Raises OSError, and ValueError where it is too long."""
        return cls.seal_json(request.model_dump(mode="json"), request.files)

    @classmethod
    def seal_json(cls, message: Mapping[str, JsonValue], files: Mapping[str, str] | None = None) -> "Sealed":
        """The same of an object and files. Raises OSError; ValueError for NaN, or more than 32 MiB."""
        contents = {name: text.encode() for name, text in (files or {}).items()}
        table = _json({name: len(content) for name, content in contents.items()})
        body = b"".join(contents.values())
        data = _HEAD.pack(len(table), len(body)) + table + body + _json(dict(message))
        if len(data) > ANSWER_LIMIT_BYTES:
            raise ValueError(f"{len(data):,} bytes; at most {ANSWER_LIMIT_BYTES:,}")
        sealed = cls(os.memfd_create("sealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        try:
            while data:
                data = data[os.write(sealed.fileno(), data) :]
            fcntl.fcntl(sealed.fileno(), fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            sealed.close()
            raise
        return sealed

    def fileno(self) -> int:
        """The descriptor; -1 after `close`."""
        return self._descriptor

    def copy(self) -> "Sealed":
        """The same memory under a descriptor of its own. Raises OSError."""
        return Sealed(fcntl.fcntl(self._descriptor, fcntl.F_DUPFD_CLOEXEC, 0))

    def read(self) -> dict[str, JsonValue]:
        """The object. Never to be called in the supervisor. Raises OSError and `BrokenFrame`."""
        if fcntl.fcntl(self._descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise frames.BrokenFrame("memory that is not sealed")
        size = os.fstat(self._descriptor).st_size
        if not _HEAD.size <= size <= ANSWER_LIMIT_BYTES:
            raise frames.BrokenFrame(f"{size:,} bytes; at most {ANSWER_LIMIT_BYTES:,}")
        start = _HEAD.size + sum(_HEAD.unpack(self._bytes(0, _HEAD.size)))
        return frames.decode(self._bytes(start, size - start))

    def write_files(self, folder: Path) -> None:
        """Put the files into a folder. Their contents pass through no memory of this process. Raises OSError."""
        table_bytes, _ = _HEAD.unpack(self._bytes(0, _HEAD.size))
        sizes = json.loads(self._bytes(_HEAD.size, table_bytes))
        place = _HEAD.size + table_bytes
        for name, size in sizes.items():
            end = place + size
            with (folder / name).open("xb", buffering=0) as file:
                while place < end:
                    place += os.sendfile(file.fileno(), self._descriptor, place, end - place)

    def close(self) -> None:
        """Close the descriptor; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _bytes(self, start: int, count: int) -> bytes:
        # By position: the offset is shared by all copies of the descriptor.
        data = bytearray()
        while len(data) < count and (more := os.pread(self._descriptor, count - len(data), start + len(data))):
            data += more
        return bytes(data)

    def __enter__(self) -> "Sealed":
        """Closed at the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def send_answer(control: socket.socket, answer: dict[str, JsonValue]) -> None:
    """A conductor's last word on a request: facts and what went wrong in sealed memory, beside a frame with the rest.

    An answer that is too long becomes one that says so. Raises OSError where the supervisor is gone.
    """
    clear = dict(answer)
    told: dict[str, JsonValue] = {"facts": clear.pop("facts", None), "fault": clear.pop("error", "")}
    if clear.get("op") == "failed":
        told["fault"] = told["fault"] or "Whoever conducted the call failed."
    try:
        sealed = Sealed.seal_json(told)
    except ValueError as error:
        clear["op"] = "failed"
        sealed = Sealed.seal_json({"facts": None, "fault": f"The answer could not be sent: {error}."})
    with sealed:
        frames.send(control, clear, [sealed.fileno()])


def _json(value: dict[str, JsonValue] | dict[str, int]) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()

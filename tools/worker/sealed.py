"""A request on its way through the supervisor: what it may know of it, and the rest sealed in memory it never reads.

Candidates are forked from the supervisor and can read all that its memory holds, freed memory included. So the task
with its held-out workloads, and the plan, travel in a sealed memory file from the server to whoever conducts the call.
"""

import fcntl
import json
import os
from types import TracebackType
from typing import Literal

from pydantic import Field, JsonValue

from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.wire import DeviceRef, WorkerRequest
from kernelgate.tools.worker import frames


class Envelope(Frozen):
    """Of a `WorkerRequest`, what the supervisor itself needs; a `Sealed` comes with it."""

    op: Literal["call"] = "call"
    request_id: int
    procedure: str
    task_name: str
    files: dict[str, str]
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
            files=request.files,
            digest=request.digest,
            device=request.device,
            lease=request.lease,
            cap_s=request.cap_s,
            state_dir=request.state_dir,
            hidden=request.hidden,
        )


class Sealed:
    """A whole request in a memory file that nobody can change any more; owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Takes over the descriptor."""
        self._descriptor = descriptor

    @classmethod
    def seal(cls, request: WorkerRequest) -> "Sealed":
        """Write the request down and seal it. Raises OSError."""
        return cls.seal_json(request.model_dump(mode="json"))

    @classmethod
    def seal_json(cls, request: dict[str, JsonValue]) -> "Sealed":
        """The same of a request that is JSON already. Raises OSError."""
        sealed = cls(os.memfd_create("request", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        try:
            data = json.dumps(request, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
            while data:
                data = data[os.write(sealed.fileno(), data) :]
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(sealed.fileno(), fcntl.F_ADD_SEALS, seals)
        except BaseException:
            sealed.close()
            raise
        return sealed

    def fileno(self) -> int:
        """The descriptor; -1 after `close`."""
        return self._descriptor

    def read(self) -> dict[str, JsonValue]:
        """The request as JSON. Never to be called in the supervisor. Raises OSError and `BrokenFrame`."""
        size = os.fstat(self._descriptor).st_size
        data = bytearray()
        # By position: the offset is shared by all copies of the descriptor.
        while len(data) < size:
            data += os.pread(self._descriptor, size - len(data), len(data))
        return frames.decode(bytes(data))

    def close(self) -> None:
        """Close the descriptor; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> "Sealed":
        """Closed at the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

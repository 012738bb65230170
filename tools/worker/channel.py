"""A frame channel for a loop that must never block: whatever the other side does or does not read, writing returns."""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pydantic import JsonValue

from kernelgate.tools.kit.wire import FRAME_LIMIT_BYTES
from kernelgate.tools.worker import frames

Message = dict[str, JsonValue]
_READ_BYTES: Final = 1 << 18
_LENGTH: Final = struct.Struct(">I")


class FrameBuffer:
    """Pieces of a byte stream in, whole frames out."""

    def __init__(self, data: bytes = b"", limit_bytes: int = FRAME_LIMIT_BYTES) -> None:
        self._data, self._limit_bytes = bytearray(data), limit_bytes

    @property
    def rest(self) -> bytes:
        """What is left of a frame that has not ended."""
        return bytes(self._data)

    def feed(self, chunk: bytes) -> None:
        """Take the next piece."""
        self._data += chunk

    def take(self) -> Message | None:
        """The next whole frame, if there is one; raises `BrokenFrame`."""
        if len(self._data) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if length > self._limit_bytes:
            raise frames.BrokenFrame(f"a frame of {length:,} bytes")
        end = _LENGTH.size + length
        if len(self._data) < end:
            return None
        body = bytes(self._data[_LENGTH.size : end])
        del self._data[:end]
        return frames.decode(body)


class Channel:
    """One end of a socket pair in the supervisor's loop.

    Args:
        sock: Becomes non-blocking and is closed with the channel.
        hear: Called with each frame.
        end: Called once with the reason when the stream ends or breaks; empty for a plain end.
        data: Bytes that were read from the stream before.
        descriptors: Where to put descriptors that come along, in the order of their frames; None: they are refused.
    """

    def __init__(
        self,
        sock: socket.socket,
        hear: Callable[[Message], None],
        end: Callable[[str], None],
        data: bytes = b"",
        descriptors: deque[int] | None = None,
    ) -> None:
        sock.settimeout(0)
        self._sock, self._hear, self._end = sock, hear, end
        self._buffer = FrameBuffer(data)
        self._descriptors = descriptors
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._open = True
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._read)
        if data:
            self._loop.call_soon(self._take_all)

    @property
    def rest(self) -> bytes:
        """What came of a frame that is not whole yet."""
        return self._buffer.rest

    async def sent(self) -> None:
        """Wait until all queued frames are with the kernel, or the stream has ended."""
        await self._idle.wait()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Queue a frame; descriptors are duplicated, so the caller may close its own. Raises ValueError if too long."""
        if self._open:
            self._unsent.append((frames.encode(message), [os.dup(descriptor) for descriptor in descriptors]))
            self._write()

    def close(self) -> None:
        """Close the socket; neither `hear` nor `end` is called any more."""
        if not self._open:
            return
        self._open = False
        self._idle.set()
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        for _, descriptors in self._unsent:
            for descriptor in descriptors:
                os.close(descriptor)
        self._unsent.clear()
        self._sock.close()

    def _read(self) -> None:
        try:
            chunk = self._receive()
        except BlockingIOError:
            return
        except OSError as error:
            self._break(str(error))
            return
        if not chunk:
            self._break("the stream ended inside a frame" if self._buffer.rest else "")
            return
        self._buffer.feed(chunk)
        self._take_all()

    def _receive(self) -> bytes:
        if self._descriptors is None:
            return self._sock.recv(_READ_BYTES)
        chunk, descriptors, _, _ = socket.recv_fds(
            self._sock, _READ_BYTES, frames.MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        self._descriptors.extend(descriptors)
        return chunk

    def _take_all(self) -> None:
        try:
            while self._open and (message := self._buffer.take()) is not None:
                self._hear(message)
        except frames.BrokenFrame as error:
            self._break(str(error))

    def _write(self) -> None:
        try:
            while self._unsent:
                data, descriptors = self._unsent[0]
                sent = socket.send_fds(self._sock, [data], descriptors) if descriptors else self._sock.send(data)
                for descriptor in descriptors:
                    os.close(descriptor)
                self._unsent.popleft()
                if sent < len(data):
                    self._unsent.appendleft((data[sent:], []))
            self._loop.remove_writer(self._sock)
            self._idle.set()
        except BlockingIOError:
            self._idle.clear()
            self._loop.add_writer(self._sock, self._write)
        except OSError:
            # The reader sees the same end of the stream and reports it; here only the writing stops.
            self._loop.remove_writer(self._sock)

    def _break(self, why: str) -> None:
        if self._open:
            self.close()
            self._end(why)

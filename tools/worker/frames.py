"""Frames between the processes of the device side: 4-byte big-endian length, JSON, descriptors beside.

At most 1 MiB; our own processes take 32 MiB of facts. Blocking sockets; whoever must not block asks `select` first.
Nothing is ever unpickled.
"""

import json
import socket
import struct
from collections.abc import Sequence
from typing import Final, cast

from pydantic import JsonValue

from kernelgate.tools.kit.wire import FRAME_LIMIT_BYTES

MAX_DESCRIPTORS: Final = 200
"""Per frame; Linux allows 253 (SCM_MAX_FD)."""
_LENGTH: Final = struct.Struct(">I")


class BrokenFrame(Exception):
    """The other side sent what is no frame: too long, not JSON, not an object, NaN."""


def _refuse_constant(name: str) -> None:
    raise BrokenFrame(f"{name} in a frame")


def decode(body: bytes) -> dict[str, JsonValue]:
    """The object in a frame's body; raises `BrokenFrame`."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame(f"not JSON: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise BrokenFrame("not a JSON object")
    return cast("dict[str, JsonValue]", value)


def encode(message: dict[str, JsonValue], limit_bytes: int = FRAME_LIMIT_BYTES) -> bytes:
    """Length and body; raises ValueError for NaN, infinity or more than the limit."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
    if len(body) > limit_bytes:
        raise ValueError(f"a frame of {len(body):,} bytes; at most {limit_bytes:,}")
    return _LENGTH.pack(len(body)) + body


def send(sock: socket.socket, message: dict[str, JsonValue], descriptors: Sequence[int] = ()) -> None:
    """Send one frame; descriptors travel with its first byte. Raises OSError when the other side is gone."""
    data = encode(message)
    if not descriptors:
        sock.sendall(data)
        return
    if len(descriptors) > MAX_DESCRIPTORS:
        raise ValueError(f"{len(descriptors)} descriptors in a frame; at most {MAX_DESCRIPTORS}")
    sent = socket.send_fds(sock, [data], list(descriptors))
    if sent < len(data):  # whoever has all of it may be gone by now, and even nothing cannot be sent to him
        sock.sendall(data[sent:])


def receive_plain(sock: socket.socket) -> dict[str, JsonValue] | None:
    """One frame from somebody who may send no descriptors: the kernel closes any that come, none reaches us."""
    received = _receive(sock, None)
    return None if received is None else received[0]


def receive(sock: socket.socket) -> tuple[dict[str, JsonValue], list[int]] | None:
    """One frame and the descriptors that came with it, or None at the end of the stream; raises `BrokenFrame`."""
    return _receive(sock, [])


def _receive(sock: socket.socket, descriptors: list[int] | None) -> tuple[dict[str, JsonValue], list[int]] | None:
    header = _exactly(sock, _LENGTH.size, descriptors)
    if header is None:
        return None
    (length,) = _LENGTH.unpack(header)
    if length > FRAME_LIMIT_BYTES:
        raise BrokenFrame(f"a frame of {length:,} bytes")
    body = _exactly(sock, length, descriptors)
    if body is None:
        raise BrokenFrame("the stream ended inside a frame")
    return decode(body), descriptors or []


def _exactly(sock: socket.socket, size: int, descriptors: list[int] | None) -> bytes | None:
    """That many bytes, or None if the stream ended before them."""
    parts = bytearray()
    while len(parts) < size:
        if descriptors is None:
            chunk = sock.recv(size - len(parts))
        else:
            chunk, received, _, _ = socket.recv_fds(sock, size - len(parts), MAX_DESCRIPTORS)
            descriptors.extend(received)
        if not chunk:
            return None
        parts += chunk
    return bytes(parts)
